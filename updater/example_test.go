package updater_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// oneVersion is an updater.Source whose lists all have the same single version.
type oneVersion []byte

func (s oneVersion) Fetch(_ context.Context, wanted []updater.Want, take func(i int, u *updater.Update)) (time.Duration, error) {
	for i, want := range wanted {
		sum := sha256.Sum256(s)
		fmt.Printf("the server is asked for %s\n", want.List)
		take(i, &updater.Update{
			Version:     []byte("1"),
			Additions:   []updater.Entries{{Width: 4, Count: len(s) / 4, Reader: bytes.NewReader(s)}},
			Checksum:    sum[:],
			MinimumWait: 30 * time.Minute,
		})
	}
	return 0, nil
}

// An Updater without a folder keeps its lists in memory. A program that continues
// calls Run; one that ends, such as a command, calls Once.
func ExampleUpdater() {
	schedule, err := updater.NewSchedule(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var database lookup.Database
	u, err := updater.New(updater.Config{
		Source:       oneVersion("\x01\x02\x03\x04\x73\xd9\x86\xe0"),
		Database:     &database,
		Schedule:     schedule,
		Lists:        []string{"se-4b"},
		FirstContact: func() time.Duration { return 0 }, // for this example; leave it nil with a real server
		Report: func(e updater.Event) {
			if e.Kind == updater.ListUpdated {
				fmt.Printf("%s now has %d entries\n", e.List, e.Entries)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("in force at the start:", u.Load())

	if err := u.Once(context.Background()); err != nil {
		fmt.Println(err)
	}
	// The minimum wait holds for whoever uses the schedule.
	if notDue, ok := errors.AsType[*updater.NotDueError](u.Once(context.Background())); ok {
		fmt.Println("too early, the next request may come in", time.Until(notDue.Until).Round(time.Minute))
	}
	// Output:
	// in force at the start: false
	// the server is asked for se-4b
	// se-4b now has 2 entries
	// too early, the next request may come in 30m0s
}

// Apply makes the next list of the one before, and checks its SHA-256.
func ExampleApply() {
	full := []byte("\x01\x01\x01\x01\x02\x02\x02\x02")
	sum := sha256.Sum256(full)
	list, _, err := updater.Apply(updater.List{Name: "mw-4b"}, &updater.Update{
		Version:   []byte("1"),
		Additions: []updater.Entries{{Width: 4, Count: 2, Reader: bytes.NewReader(full)}},
		Checksum:  sum[:],
	}, updater.DefaultMaxEntries)
	fmt.Println(list.Set.Len(), err)

	// The first entry, index 0, goes, and another one comes: a wrong sum is noticed.
	_, _, err = updater.Apply(list, &updater.Update{
		Version:   []byte("2"),
		Partial:   true,
		Removals:  updater.Entries{Width: 4, Count: 1, Reader: bytes.NewReader([]byte{0, 0, 0, 0})},
		Additions: []updater.Entries{{Width: 4, Count: 1, Reader: bytes.NewReader([]byte("\x03\x03\x03\x03"))}},
		Checksum:  sum[:],
	}, updater.DefaultMaxEntries)
	fmt.Println(errors.Is(err, updater.ErrChecksum), list.Set.Len())
	// Output:
	// 2 <nil>
	// true 2
}

// confirming is a lookup.Searcher that knows one threat. One for a real server asks it for hashes.
type confirming string

func (s confirming) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	threat := lookup.ThreatHash{Hash: lookup.HashExpression(string(s)), Threats: lookup.Threats(0).With(lookup.Malware), TTL: 5 * time.Minute}
	return lookup.Answer{Threats: []lookup.ThreatHash{threat}, TTL: 5 * time.Minute}, nil
}

// A checker of another program: it brings an updater.Source and a lookup.Searcher of its own, since the client of
// Google's servers is not exported.
func Example_checker() {
	schedule, err := updater.NewSchedule(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var database lookup.Database
	u, err := updater.New(updater.Config{Source: oneVersion("\x01\x02\x03\x04\x73\xd9\x86\xe0"), Database: &database, Schedule: schedule,
		Lists: []string{"mw-4b"}, FirstContact: func() time.Duration { return 0 }}) // leave it nil with a real server
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := u.Once(context.Background()); err != nil { // a server calls Run
		fmt.Println(err)
	}
	rules := updater.SearchRules{Backoff: updater.Strikes} // of version 5
	searcher := updater.Pace(confirming("example.com/"), schedule, rules, func(updater.Event) {})
	checker, err := lookup.NewChecker(lookup.Config{Database: &database, Searcher: searcher})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer checker.Close()
	for _, name := range []string{"www.example.com.", "example.org."} {
		decision, candidates := checker.Check(lookup.FromQname(name))
		if candidates != nil { // a list has it: only the server knows
			decision = checker.Confirm(candidates, nil).Wait(context.Background())
		}
		fmt.Println(name, decision.Verdict)
	}
	// Output:
	// the server is asked for mw-4b
	// www.example.com. unsafe
	// example.org. safe
}
