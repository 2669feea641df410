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
