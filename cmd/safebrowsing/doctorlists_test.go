package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// The doctor follows a folder in which one list is misspelt, from the first refusal
// to a server that is down for days.
func TestDoctorSaysWhatProtects(t *testing.T) {
	const endpoint = "http://doctor.example"
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		server.SetMinimumWait("", 30*time.Minute)
		server.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
		corefile := dir + "/Corefile"
		write(t, corefile, fmt.Sprintf(". {\n safebrowsing {\n  endpoint %s\n  lists se-4b pha4-4b\n  db %s/db\n }\n}\n", endpoint, dir))
		diagnose := func() diagnosis {
			blocks, err := readCorefile(corefile)
			if err != nil {
				t.Fatal(err)
			}
			defer closeBlocks(blocks)
			return listsDiagnosis(blocks[0].Block, time.Now())
		}
		want := func(status string, parts ...string) {
			t.Helper()
			d := diagnose()
			for _, part := range parts {
				if !strings.Contains(string(d.Text+" → "+d.Advice), part) {
					t.Errorf("want %q in %+v", part, d)
				}
			}
			if d.Status != status {
				t.Errorf("want %s, got %+v", status, d)
			}
		}
		fetch := func() {
			t.Helper()
			client, err := protocol.NewV5(protocol.Config{Endpoint: endpoint, UserAgent: "doctor/1", Transport: server})
			if err != nil {
				t.Fatal(err)
			}
			store, err := updater.OpenStore(dir+"/db", updater.Origin{Name: endpoint, Asker: updater.Asker(endpoint, "")})
			if err != nil {
				t.Fatal(err)
			}
			schedule, err := updater.NewSchedule(store)
			if err != nil {
				t.Fatal(err)
			}
			u, err := updater.New(updater.Config{Source: client, Database: new(lookup.Database), Schedule: schedule, Store: store, Lists: []string{"se-4b", "pha4-4b"}})
			if err != nil {
				t.Fatal(err)
			}
			if err := u.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want(isWarning, "0 of 2 in force, missing: se-4b, pha4-4b", "within a minute after its start")
		fetch() // the whole batch is refused
		want(isProblem, "0 of 2 in force, missing: se-4b, pha4-4b; not asked before 20", "back-off after a failure", "status 400", "the names in lists")
		time.Sleep(31 * time.Minute)
		fetch() // each by itself
		want(isProblem, "1 of 2 in force, missing: pha4-4b (back-off after ", "status 400", "did you mean pha-4b?", "the names in lists")
		time.Sleep(25 * time.Hour)
		want(isWarning, "1 of 2 in force, missing: pha4-4b")
		write(t, corefile, strings.Replace(read(t, corefile), "pha4-4b", "", 1))
		want(isProblem, "but not updated: se-4b since ")
	})
}
