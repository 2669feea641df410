package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestDoctorSaysWhatIsLeftOfTheBudget(t *testing.T) {
	testkit.Long(t)
	today := time.Now().Format(time.DateOnly)
	spent := func(n int) string { return fmt.Sprintf(`{"day":%q,"spent":{%q:%d}}`, today, today, n) }
	const paused = "confirmations are paused until TIME (the day's budget of 5 searches is spent)"
	for name, test := range map[string]struct {
		properties string
		file       string // "": none
		diagnosis         // without the check
		note       string // of check
	}{
		"nothing is spent":  {"budget 5", "", diagnosis{"", isOK, "0 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}, ""},
		"some are spent":    {"budget 5", spent(3), diagnosis{"", isOK, "3 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}, ""},
		"most are spent":    {"budget 5", spent(4), diagnosis{"", isWarning, "4 of 5 searches of today are spent or reserved; the next day begins at TIME", "raise budget in the Corefile if this happens often"}, ""},
		"all are spent":     {"budget 5", spent(5), diagnosis{"", isProblem, "all of the 5 searches of today are spent: suspected names pass until TIME", "raise budget in the Corefile, or wait"}, paused},
		"an hour's part":    {"budget 400", fmt.Sprintf(`{"day":%q,"spent":{%q:100},"recent":{%q:100}}`, today, today, time.Now().UTC().Truncate(5*time.Minute).Format("2006-01-02T15:04Z")), diagnosis{"", isWarning, "in part: the 100 searches that one hour may take of the day's 400 are spent, and 300 are left for later today: suspected names pass until TIME", "raise budget in the Corefile if this happens often"}, "confirmations are paused until TIME (the 100 searches that one hour may take of the day's 400 are spent)"},
		"of another day":    {"budget 5", `{"day":"2026-01-02","spent":{"2026-01-02":5}}`, diagnosis{"", isOK, "0 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}, ""},
		"unknown":           {"budget 5", "{", diagnosis{"", isProblem, "", "wait; or stop CoreDNS, delete the file and start CoreDNS: then the day begins with the whole budget"}, "confirmations are paused until TIME (the number of searches spent today is unknown)"},
		"unlimited":         {"budget unlimited", spent(5), diagnosis{"", isWarning, "unlimited: each search costs money, and one client that asks for random names causes as many as limit allows", "replace budget unlimited by budget COUNT, the most searches a day"}, ""},
		"kept in memory":    {"budget 1; db off", "", diagnosis{"", isSkipped, "1 search a day; only CoreDNS knows how many are spent: see the metric coredns_safebrowsing_budget_remaining", ""}, ""},
		"of Safe Browsing":  {"budget 5; protocol v5", spent(3), diagnosis{"", isOK, "0 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}, ""},
		"none, of the same": {"protocol v5", spent(3), diagnosis{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			testkit.Must(t, os.MkdirAll(w.dir, 0o700))
			properties := test.properties
			for word, usual := range map[string]string{"db ": "; db DB", "protocol ": "; protocol webrisk"} {
				if !strings.Contains(properties, word) {
					properties += usual
				}
			}
			corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  "+strings.ReplaceAll(properties, "; ", "\n  ")+"\n }\n}\n")
			if strings.Contains(properties, "db DB") {
				w.mustUpdate(t, 0, corefile)
			}
			if test.file != "" {
				write(t, filepath.Join(w.dir, "budget-webrisk.json"), test.file)
			}
			_, found, out := examine(t, corefile, "-offline")
			got, want := found["budget"], test.diagnosis
			got.Text = text(w.plain(string(got.Text)))
			if got.Check, want.Text = "", cmp.Or(want.Text, got.Text); got != want {
				t.Errorf("got %+v, want %+v; all: %s", got, want, out)
			}
			if name == "unknown" && !strings.HasPrefix(string(got.Text), "the number of searches spent today is unknown: the file stays as it is: DB/budget-webrisk.json: damaged file") {
				t.Errorf("got %s", got.Text)
			}
			if name == "kept in memory" && !strings.Contains(string(found["corefile"].Text), "db is off: the budget is kept in memory") {
				t.Errorf("got %+v", found["corefile"])
			}
			if d, twice := found["confirm"]; twice {
				t.Errorf("said twice: %+v", d)
			}
		})
	}
}

func TestDoctorWarnsOfBlockingByTheExtendedList(t *testing.T) {
	w := newWorld(t)
	for properties, want := range map[string]bool{
		"budget 5": false, "budget 5; lists se-4b se-ext-4b": true, "budget 5; lists se-ext-4b; monitor": false,
	} {
		corefile := w.riskCorefile(t, properties)
		status, found, out := examine(t, corefile, "-offline")
		d, warned := found["se-ext-4b"]
		if status != 0 || warned != want || warned && (d.Status != isWarning || !strings.HasPrefix(string(d.Text), corefile+":2 blocks")) {
			t.Errorf("%s: status %d, %+v, want a warning: %t; all: %s", properties, status, d, want, out)
		}
	}
}
