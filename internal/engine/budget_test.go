package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// The line of the start is a warning if names are not confirmed, or at any price.
func TestTheStartSaysWhatTheBudgetAllows(t *testing.T) {
	for name, test := range map[string]struct {
		budget int
		file   string
		want   []string
	}{
		"none":    {0, "", []string{"[WARNING]", "NO budget: searches cost money"}},
		"some":    {1, "", []string{"[INFO]", "budget of 1 search a day, 1 left today"}},
		"spent":   {1, `{"day":"2000-01-01","spent":{"2000-01-01":1}}`, []string{"[WARNING]", "budget of 1 search a day, 0 left today; confirmations are paused until ", " (the day's budget of 1 search is spent)"}},
		"unknown": {2, "{", []string{"[WARNING]", "budget of 2 searches a day, 0 left today; confirmations are paused until "}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := testkit.Capture(t)
			synctest.Test(t, func(t *testing.T) {
				s := Settings{Endpoint: "http://budget.example", Protocol: protocol.DialectWebRisk.Name, Lists: "se-4b", DB: t.TempDir(), Budget: test.budget, Share: 100}
				google := listing(t, time.Hour)
				_, end := life(t, s, google, 0) // fetches the list
				end()
				if test.file != "" {
					file := filepath.Join(s.DB, "budget-webrisk.json")
					testkit.Must(t, os.WriteFile(file, []byte(test.file), 0o600))
					if err := os.Chtimes(file, time.Now(), time.Now()); err != nil { // the bubble's time
						t.Fatal(err)
					}
				}
				lines.Forget()
				_, end = life(t, s, google, 0)
				testkit.WantParts(t, lines.Only(t, "Web Risk is on"), test.want...)
				end()
			})
		})
	}
}

func TestLinesOfTheBudgetSayWhatToDo(t *testing.T) {
	r := reporting(t, Settings{Protocol: protocol.DialectWebRisk.Name})
	due := time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		event updater.Event
		want  string
	}{
		"low":     {updater.Event{Kind: updater.BudgetLow, Spent: 8, Budget: 10, Due: due}, "[WARNING] plugin/safebrowsing: 8 of the day's 10 searches are spent. When all are spent, suspected names pass until 2026-05-02T00:00:00Z. Raise budget if this happens often"},
		"spent":   {updater.Event{Kind: updater.BudgetSpent, Spent: 1, Budget: 1, Due: due}, "[WARNING] plugin/safebrowsing: The day's budget of 1 search is spent. Suspected names pass until 2026-05-02T00:00:00Z. Raise budget to confirm more names a day"},
		"unknown": {updater.Event{Kind: updater.BudgetSpent, Budget: 10, Due: due, Err: updater.ErrDamaged}, "[WARNING] plugin/safebrowsing: No names are confirmed: damaged file. Suspected names pass until 2026-05-02T00:00:00Z. To begin the day with the whole budget, stop CoreDNS and delete the file"},
		"an hour": {updater.Event{Kind: updater.BudgetPaused, Spent: 30, Budget: 100, Due: due, Hold: updater.Hold{Until: due, Budget: 100, Portion: updater.AnHour}}, "[WARNING] plugin/safebrowsing: In part: the 25 searches that one hour may take of the day's 100 are spent (30 today). Suspected names pass until 2026-05-02T00:00:00Z, for all clients. Raise budget if this happens often; find out who asks"},
		"alone":   {updater.Event{Kind: updater.BudgetPaused, Spent: 30, Budget: 100, Due: due, Hold: updater.Hold{Until: due, Budget: 100, Portion: updater.OneAlone}}, "[WARNING] plugin/safebrowsing: In part: the part of the day's 100 searches that this process may spend without Redis is spent (30 today). Suspected names pass until 2026-05-02T00:00:00Z, for all clients. Repair the way to Redis: then all of the budget can be spent"},
		"renewed": {updater.Event{Kind: updater.BudgetRenewed, Budget: 1, Due: due}, "[INFO] plugin/safebrowsing: Names are confirmed again, with the new day's budget of 1 search"},
	} {
		lines := testkit.Capture(t)
		r.report(test.event)
		if _, got, _ := strings.Cut(strings.TrimSpace(lines.Only(t, "")), " ["); "["+got != testkit.LocalTimes(test.want) {
			t.Errorf("%s: got %q, want %q", name, "["+got, test.want)
		}
	}
}
