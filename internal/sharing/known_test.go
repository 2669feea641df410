package sharing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// checkerOf returns a checker of names that a list holds.
func checkerOf(t *testing.T, searcher lookup.Searcher, listed ...lookup.FullHash) *lookup.Checker {
	t.Helper()
	var entries []string
	for _, hash := range listed {
		entries = append(entries, string(hash.Prefix(4)))
	}
	slices.Sort(entries)
	b := prefixset.NewBuilder(0)
	for _, e := range entries {
		testkit.Must(t, b.Add([]byte(e), 4))
	}
	db := new(lookup.Database)
	db.Publish([]lookup.List{{Name: "se-4b", Set: b.Set()}})
	c, err := lookup.NewChecker(lookup.Config{Database: db, Searcher: searcher})
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// decideOn returns the decision about a name.
func decideOn(t *testing.T, c *lookup.Checker, qname string) lookup.Decision {
	t.Helper()
	d, candidates := c.Check(lookup.FromQname(qname))
	if candidates != nil {
		d = c.Confirm(candidates, nil).Wait(t.Context())
	}
	return d
}

// Two relays share a Redis, and start again with an empty cache in any order. Whatever their servers
// answer, a threat that is in Redis decides.
func TestNoOrderOfAnswersOverRedisTurnsAKnownThreatIntoAPass(t *testing.T) {
	testkit.Long(t)
	s := testkit.StartRedis(t)
	hashes := []lookup.FullHash{hashOf("c.b.a.example/"), hashOf("b.a.example/"), hashOf("a.example/")}
	threat := lookup.ThreatHash{Hash: hashes[2], Threats: lookup.AllThreats, TTL: time.Hour}
	known := 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 25))
		s.Do("FLUSHALL")
		srv := new(server)
		clients := []*Answers{NewAnswers(openRedis(t, s.URL()), srv), NewAnswers(openRedis(t, s.URL()), srv)}
		for range 12 {
			srv.mu.Lock() // a search may outlive the decision that began it
			srv.answer = lookup.Answer{TTL: time.Hour, Threats: []lookup.ThreatHash{threat}}
			srv.err = []error{nil, lookup.ErrBackoff, lookup.ErrBudget, errLate, &lookup.UnansweredError{Until: time.Now(), Reason: lookup.ErrShare}}[rng.IntN(5)]
			srv.mu.Unlock()
			if rng.IntN(2) == 0 { // a client of a relay asks about one prefix
				_, _ = clients[rng.IntN(2)].Search(t.Context(), []lookup.Prefix{hashes[rng.IntN(3)].Prefix(4)})
				continue
			}
			inRedis := s.Do("EXISTS", fmt.Sprintf("safebrowsing:1:{test}:answer:%x", string(hashes[2].Prefix(4)))) == ":1"
			d := decideOn(t, checkerOf(t, clients[rng.IntN(2)], hashes...), "c.b.a.example.")
			if inRedis {
				known++
			}
			if inRedis && d.Verdict != lookup.Unsafe || d.Verdict == lookup.Safe {
				t.Fatalf("seed %d: %s by %s (%v), in Redis: %t", seed, d.Verdict, d.By, d.Err, inRedis)
			}
		}
	}
	if known < 20 {
		t.Errorf("%d decisions about a threat in Redis", known)
	}
}

// A server hangs. What Redis knows about a name is used at once: in the same search, and of a prefix that
// another relay has been told about meanwhile.
func TestAThreatThatRedisKnowsDoesNotWaitForAServerThatHangs(t *testing.T) {
	for name, late := range map[string]bool{"known before": false, "claimed by another relay": true} {
		t.Run(name, func(t *testing.T) {
			s := testkit.StartRedis(t)
			exact, parent := hashOf("evil.bad.example/"), hashOf("bad.example/")
			srv := &server{answer: lookup.Answer{TTL: time.Hour, Threats: []lookup.ThreatHash{{Hash: parent, Threats: lookup.AllThreats, TTL: time.Hour}}}}
			claimed, answers := make(chan struct{}), make(chan struct{})
			srv.during = func() { close(claimed); <-answers }
			other := NewAnswers(openRedis(t, s.URL()), srv)
			other.LeastPatience = time.Minute // so that its claim lasts on a busy machine
			go func() { _, _ = other.Search(t.Context(), []lookup.Prefix{parent.Prefix(4)}) }()
			<-claimed
			if !late {
				close(answers)
				testkit.Until(t, "the answer in Redis", func() bool { return stored(t, s, parent.Prefix(4)) != "" })
			}
			hanging, asked := &server{took: time.Hour, err: errLate}, make(chan struct{})
			hanging.during = func() { close(asked) }
			one := NewAnswers(openRedis(t, s.URL()), hanging)
			one.LeastPatience = time.Minute
			c := checkerOf(t, one, exact, parent)
			if late {
				go func() { <-asked; close(answers) }()
			}
			_, candidates := c.Check(lookup.FromQname("evil.bad.example."))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the search ends after 10
			defer cancel()
			d := c.Confirm(candidates, nil).Wait(ctx)
			if d.Verdict != lookup.Unsafe || d.By != lookup.ByServer || d.Expression != "bad.example/" {
				t.Errorf("a threat that Redis knows is %s by %s (%v)", d.Verdict, d.By, d.Err)
			}
		})
	}
}
