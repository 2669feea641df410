package block

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// started are the blocks of the process that have started and not ended.
var started set

// set is a set of blocks. The zero set is empty; it is safe for concurrent use.
type set struct {
	mu     sync.Mutex
	blocks []*Block
}

func (s *set) add(b *Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks = append(s.blocks, b)
}

func (s *set) remove(b *Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks = slices.DeleteFunc(s.blocks, func(other *Block) bool { return other == b })
}

// all returns the blocks by their zones.
func (s *set) all() []*Block {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(s.blocks), func(a, b *Block) int { return cmp.Compare(a.zones(), b.zones()) })
}

// zones returns the zones, joined by a space.
func (b *Block) zones() string { return strings.Join(b.Config.Zones, " ") }

// Report returns what blocks protect by. Blocks with equal settings have one service.
func Report(blocks []*Block, now time.Time) status.Report {
	r := status.Report{At: now}
	services := make(map[engine.Settings]int)
	for _, b := range blocks {
		standing := b.standing()
		if s := b.service.Load(); s != nil {
			i, known := services[b.Settings]
			if !known {
				i = len(r.Services)
				services[b.Settings] = i
				service := s.Standing(now)
				service.Notice = b.Reply().Notice()
				r.Services = append(r.Services, service)
			}
			standing.Service = i
		}
		r.Blocks = append(r.Blocks, standing)
	}
	return r
}

// standing returns what the block protects by, without its service.
func (b *Block) standing() status.Block {
	s := status.Block{Zones: b.zones(), Service: -1, Monitor: b.Config.Monitor}
	s.Paused, _ = b.PausedUntil()
	for _, own := range b.OwnLists() {
		o := status.OwnList{Name: own.Named, Allow: own.Allow, Entries: own.InForce(), Nothing: own.Complaint()}
		if own.Err != nil {
			o.Trouble = own.Err.Error()
		}
		s.Own = append(s.Own, o)
	}
	return s
}

// Problems returns an error for each list that Read has found missing or damaged, and that so
// finds nothing. A block that is started has none: its service tells.
func (b *Block) Problems() []error {
	if b.stored == nil {
		return nil
	}
	return b.stored.Problems
}

// Lists returns the lists of Safe Browsing that Read has found, see engine.Stored.
func (b *Block) Lists() ([]updater.ListStatus, error) {
	if b.stored == nil {
		return nil, nil
	}
	return b.stored.Lists()
}

// Count returns the count of searches that Read has found; nil: there is none. The error says
// that the count cannot be read.
func (b *Block) Count() (*updater.Ledger, error) {
	if b.stored == nil {
		return nil, nil
	}
	return b.stored.Count(), b.stored.Uncounted
}

// FetchHold returns why and until when no lists are fetched.
func (b *Block) FetchHold() (hold updater.Hold) {
	if s := b.service.Load(); s != nil {
		hold = s.FetchHold()
	}
	return hold
}

// SearchHold returns why and until when no names are confirmed.
func (b *Block) SearchHold() (hold updater.Hold) {
	if s := b.service.Load(); s != nil {
		hold = s.SearchHold()
	}
	return hold
}

// answer returns what the block decides about a host, for the page.
func (b *Block) answer(h lookup.Host, qname string) status.Answer {
	e := b.Explain(h, qname)
	a := status.Answer{Zones: b.zones(), Text: h.String() + " passes"}
	switch {
	case e.Verdict == lookup.Unsafe && b.Config.Monitor:
		a.Text = h.String() + " would be blocked, but monitor lets it pass"
	case e.Verdict == lookup.Unsafe:
		a.Blocked, a.Text = true, h.String()+" is blocked"
	case e.Suspected:
		a.Text = h.String() + " is suspected"
	}
	add := func(format string, value any) {
		if text := fmt.Sprint(value); text != "" && text != "." {
			a.Reasons = append(a.Reasons, fmt.Sprintf(format, text))
		}
	}
	reply := b.Reply()
	a.Words.Text = reply.Warning(e.Decision)
	if strings.HasSuffix(a.Words.Text, reply.Advisory) {
		a.Words.URL = reply.Advisory
	}
	add("%s", e.Note)
	add("List: %s", filepath.Base(e.List))
	add("Entry: %s", strings.TrimSuffix(e.Expression, "/"))
	if e.By != lookup.ByNobody && e.By != lookup.ByList { // of these the note says why
		add("Decided by: %s", e.By)
	}
	if !e.Confirmed.IsZero() {
		add("Confirmed by the server: %s", say.Time(e.Confirmed))
	}
	if !e.Expires.IsZero() {
		add("This decision holds for: %s", status.Age(max(0, time.Until(e.Expires))))
	}
	add("To let it pass: %s", e.Unblock())
	return a
}
