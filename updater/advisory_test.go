package updater

import (
	"context"
	"strings"
	"testing"
	"time"
)

// told is a Source that says whose words its lists are.
type told struct{ text string }

func (told) Fetch(context.Context, []Want, func(int, *Update)) (time.Duration, error) { return 0, nil }
func (s told) Advisory() (text string, known bool)                                    { return s.text, s.text != "?" }

// What a server said is known after a restart, with any key. It does not count for the lists of
// another server in the same folder. A file of a version before it was kept is read as always.
func TestWhatAServerSaysOfItselfIsSavedWithTheSchedule(t *testing.T) {
	dir := t.TempDir()
	at := func(server, asker string) *Schedule {
		store, err := OpenStore(dir, Origin{Name: server, Asker: asker})
		must(t, err)
		s, err := NewSchedule(store)
		must(t, err)
		return s
	}
	save := func(s *Schedule) {
		s.owned = true
		must(t, s.change(func(*scheduleState) {}))
	}
	before := at("http://relay", "one")
	before.state.Fetch.Clock = Clock{NotBefore: time.Now().Add(time.Hour), Failures: 1}
	save(before)
	raw, err := readSmall(dir + "/schedule.json")
	must(t, err)
	if strings.Contains(string(raw), "advice") {
		t.Errorf("Expected the form of the version before, got %s", raw)
	}
	s := at("http://relay", "one")
	if got := s.Advisory(); got != "" || s.FetchHold([]string{"se-4b"}).Failures != 1 {
		t.Errorf("Expected the wait and no advisory, got %q, %+v", got, s.FetchHold([]string{"se-4b"}))
	}
	s.advise(told{"https://advisory.example/"})
	s.advise(told{"?"}) // it has not answered: what was known stays
	save(s)
	for _, asker := range []string{"one", "two", ""} {
		if got := at("http://relay", asker).Advisory(); got != "https://advisory.example/" {
			t.Errorf("Asker %q: got %q", asker, got)
		}
	}
	if got := at("http://other", "one").Advisory(); got != "" {
		t.Errorf("Of another server: got %q", got)
	}
	next := newSchedule(nil)
	last := newSchedule(nil)
	last.advise(told{"https://advisory.example/"})
	next.Follow(last)
	if got := next.Advisory(); got != "https://advisory.example/" {
		t.Errorf("After a reload, in memory: got %q", got)
	}
	s.advise(told{""})
	save(s)
	if got := at("http://relay", "one").Advisory(); got != "" {
		t.Errorf("Of a server that has none any more: got %q", got)
	}
}
