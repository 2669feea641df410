package lookup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The hosts of merged searches. All their expressions are listed.
var (
	mergedHosts   = []string{"c.b.a.example.", "b.a.example.", "a.example.", "d.a.example.", "other.example.", "b.other.example."}
	mergedThreats = []string{"a.example/", "c.b.a.example/", "b.other.example/"} // some of them, by the first byte
)

// program is what a fuzz target does next, byte for byte. It ends with zeros.
type program struct{ left []byte }

func (p *program) next(n int) int {
	if len(p.left) == 0 {
		return 0
	}
	b := p.left[0]
	p.left = p.left[1:]
	return int(b) % n
}

// mergedWorld is a Checker whose Searcher answers, fails and delays as a program says, and what the Checker must know by then.
type mergedWorld struct {
	t       *testing.T
	checker *Checker
	threats map[string]bool // expressions

	mu sync.Mutex
	do *program
	// by prefix
	busy   map[Prefix]bool      // asked about now
	fresh  map[Prefix]time.Time // not to be asked about before: the answer is known, or a relay said so
	threat map[Prefix]time.Time // the threats are known until
	learnt map[Prefix]time.Time // since
}

// under returns the threats that begin with p.
func (w *mergedWorld) under(p Prefix, ttl time.Duration) (all []ThreatHash) {
	for e := range w.threats {
		if p.begins(HashExpression(e)) {
			all = append(all, lasting(ttl, isThreat(e, Malware)))
		}
	}
	return all
}

// Search implements Searcher.
func (w *mergedWorld) Search(ctx context.Context, prefixes []Prefix) (Answer, error) {
	w.mu.Lock()
	for _, p := range prefixes {
		if w.busy[p] {
			w.t.Errorf("%x is asked about twice at once", p)
		}
		if time.Now().Before(w.fresh[p]) {
			w.t.Errorf("%x is asked about %s too early", p, time.Until(w.fresh[p]))
		}
		w.busy[p] = true
	}
	delay := []time.Duration{0, 0, time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 9 * time.Second}[w.do.next(6)]
	ttl := []time.Duration{0, time.Second, time.Minute, time.Hour}[w.do.next(4)]
	wait := []time.Duration{time.Second, time.Minute, time.Hour}[w.do.next(3)]
	err := []error{nil, nil, errors.New("trouble"), ErrBackoff, fmt.Errorf("no: %w", ErrBudget), &UnansweredError{Until: time.Now().Add(delay + wait), Reason: ErrShare}}[w.do.next(6)]
	parts := make([]int, len(prefixes))
	for i := range parts {
		parts[i] = w.do.next(3)
	}
	answer := Answer{TTL: ttl, Earlier: make(map[Prefix]EarlierAnswer)}
	var told []Prefix
	for i, p := range prefixes {
		if w.do.next(2) == 1 && w.earlier(answer, p, parts[i], err) {
			told = append(told, p)
			w.busy[p] = parts[i] == 2 // all is known, and it may be asked about again before this search ends
		}
	}
	w.mu.Unlock()
	Tell(ctx, told, answer)
	time.Sleep(delay)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, p := range prefixes {
		_, wasTold := answer.Earlier[p]
		if !wasTold || parts[i] == 2 {
			w.busy[p] = false
		}
		switch {
		case wasTold, w.earlier(answer, p, parts[i], err):
			if parts[i] == 2 {
				w.putOff(p, err, wait)
			}
		case err == nil:
			answer.Threats = append(answer.Threats, w.under(p, ttl)...)
			w.learn(p, ttl, ttl)
		default:
			answer.Threats = append(answer.Threats, lasting(time.Hour, isThreat(mergedThreats[i%3], Malware))) // it says nothing
			w.putOff(p, err, wait)
		}
	}
	return answer, err
}

// earlier adds what another cache knows about p: all (1), or only threats (2) if the search fails. The caller holds mu.
func (w *mergedWorld) earlier(answer Answer, p Prefix, part int, err error) bool {
	ttl, threats := answer.TTL, answer.TTL
	switch {
	case part == 2 && err != nil:
		ttl, threats = -1, time.Minute
	case part != 1:
		return false
	}
	answer.Earlier[p] = EarlierAnswer{Received: time.Now(), TTL: ttl, Threats: w.under(p, threats)}
	w.learn(p, ttl, threats)
	return true
}

// learn notes what is known from now on. The caller holds mu.
func (w *mergedWorld) learn(p Prefix, answer, threats time.Duration) {
	if answer > 0 {
		w.fresh[p] = time.Now().Add(answer)
		if len(w.under(p, 0)) > 0 {
			w.fresh[p] = time.Now().Add(min(answer, maxVerdictAge-transit)) // a relay asks again then
		}
	}
	w.threat[p], w.learnt[p] = time.Now().Add(min(threats, maxVerdictAge-transit)), time.Now()
}

// putOff notes until when a relay must not be asked again about p. The caller holds mu.
func (w *mergedWorld) putOff(p Prefix, err error, wait time.Duration) {
	if _, ok := errors.AsType[*UnansweredError](err); ok {
		w.fresh[p] = time.Now().Add(min(wait, MaxUnanswered))
	}
}

// knows reports whether a threat below p must be known since begun, and is still.
func (w *mergedWorld) knows(p Prefix, before time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.under(p, 0)) > 0 && w.learnt[p].Before(before) && !w.learnt[p].IsZero() && time.Now().Before(w.threat[p])
}

// decide asks about a host, and judges the decision.
func (w *mergedWorld) decide(qname string) {
	threatened, known := false, false
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	d := confirmed(ctx, w.checker, qname, nil)
	for _, e := range FromQname(qname).Expressions() {
		threatened = threatened || w.threats[e]
		known = known || w.threats[e] && w.knows(HashExpression(e).Prefix(4), time.Now())
	}
	switch {
	case known && d.Verdict != Unsafe:
		w.t.Errorf("%s is %s by %s (%v), and its threat is known", qname, d.Verdict, d.By, d.Err)
	case threatened && d.Verdict == Safe, !threatened && d.Verdict == Unsafe:
		w.t.Errorf("%s is %s by %s (%v), threatened: %t", qname, d.Verdict, d.By, d.Err, threatened)
	}
}

// search asks about prefixes as a relay does, and judges the answers.
func (w *mergedWorld) search(prefixes []Prefix, admitted int) {
	admit := AdmitAll(func(n int) (int, func(), error) {
		if n > admitted {
			return admitted, func() {}, ErrShare
		}
		return n, func() {}, nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	answers, err := w.checker.Search(ctx, prefixes, false, admit, nil)
	failed := false
	for i, p := range prefixes {
		a, threats := answers[i], len(w.under(p, 0))
		failed = failed || a.Err != nil
		if a.Err == nil && len(a.Threats) != threats || len(a.Threats) > threats {
			w.t.Errorf("prefix %x: %d threats (%v), want %d", p, len(a.Threats), a.Err, threats)
		}
		if a.Err != nil && len(a.Threats) < threats && w.knows(p, time.Now()) {
			w.t.Errorf("prefix %x: its threat is known, and not told (%v)", p, a.Err)
		}
	}
	if failed != (err != nil) {
		w.t.Errorf("an error of one is %t, of all %v", failed, err)
	}
}

// run runs a program.
func (w *mergedWorld) run(data []byte) {
	w.do = &program{data}
	first := w.do.next(8)
	for i, e := range mergedThreats {
		if first&(1<<i) != 0 {
			w.threats[e] = true
		}
	}
	var exprs []string
	for _, h := range mergedHosts {
		exprs = append(exprs, h[:len(h)-1]+"/")
	}
	w.checker = checkerOf(w.t, Config{Searcher: w, PerSearch: []int{0, 1, 2}[w.do.next(3)], Searches: []int{0, 1, 2}[w.do.next(3)]}, exprs...)
	var wg sync.WaitGroup
	for {
		w.mu.Lock()
		over := len(w.do.left) == 0
		op, which, many := w.do.next(3), w.do.next(len(mergedHosts)), w.do.next(3)
		pause := []time.Duration{0, time.Millisecond, 400 * time.Millisecond, time.Second, 50 * time.Second, 20 * time.Minute}[w.do.next(6)]
		w.mu.Unlock()
		if over {
			break
		}
		switch op {
		case 0, 1:
			wg.Go(func() { w.decide(mergedHosts[which]) })
		case 2:
			prefixes := []Prefix{}
			for i := range 1 + which {
				prefixes = append(prefixes, HashExpression(exprs[(i+many)%len(exprs)]).Prefix(4))
			}
			wg.Go(func() { w.search(prefixes, many) })
		}
		time.Sleep(pause)
	}
	wg.Wait()
	w.checker.Close()
}

// FuzzMergedSearches merges queries and requests of a relay's clients into searches that are answered
// in part. A threat that is known is never passed or kept from a client; no name is safe that
// nobody has answered about; no prefix is asked about while its answer is known or has to be waited for.
func FuzzMergedSearches(f *testing.F) {
	for seed := range byte(200) {
		data := make([]byte, 600)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // it never fails
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			w := &mergedWorld{t: t, threats: make(map[string]bool), busy: make(map[Prefix]bool), fresh: make(map[Prefix]time.Time),
				threat: make(map[Prefix]time.Time), learnt: make(map[Prefix]time.Time)}
			w.run(data[:min(len(data), 1000)])
		})
	})
}
