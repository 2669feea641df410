package protocol

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestDecodingOfV4EndsWithItsContext(t *testing.T) {
	inV4 := func(sets ...*entrySet) []byte {
		m := phishing(fullUpdate, "")
		m.Additions = sets
		return updatesV4(t, 0, m)
	}
	removing := func(set *entrySet) []byte {
		m := phishing(partialUpdate, "")
		m.Removals = []*entrySet{set}
		return updatesV4(t, 0, m)
	}
	v4 := func(body []byte) Client { return newV4(t, always(binaryForm, body), "se-4b") }
	endWithTheirContexts(t, map[string]Client{
		"Rice":         v4(inV4(riceSet(5, 2, 2, "f702"))),
		"raw":          v4(inV4(raw(4, "00000001"))),
		"raw removals": v4(removing(rawIndices(0))),
		"removals":     v4(removing(riceIndices(0, 0, 0, ""))),
	})
}

// Merging three million entries of 32 sets takes a second: whoever stops does not
// wait for that.
func TestDecodingIsCutInTheMiddle(t *testing.T) {
	const sets, entries = 32, 100_000
	m := phishing(fullUpdate, "")
	for i := range sets {
		hashes := make([]byte, 0, 4*entries)
		for j := range entries {
			hashes = binary.BigEndian.AppendUint32(hashes, uint32(j*sets+i))
		}
		m.Additions = append(m.Additions, &entrySet{CompressionType: sbv4.CompressionType_RAW, RawHashes: &sbv4.RawHashes{PrefixSize: 4, RawHashes: hashes}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var applied error
	_, err := newV4(t, always(binaryForm, updatesV4(t, 0, m)), "se-4b").Fetch(ctx, []updater.Want{{List: "se-4b"}}, func(_ int, u *updater.Update) {
		time.AfterFunc(20*time.Millisecond, cancel)
		_, _, applied = updater.Apply(updater.List{Name: "se-4b"}, u, 1<<24)
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(applied, context.Canceled) {
		t.Errorf("the request is over, but got %v, %v", err, applied)
	}
}

// The names of origins and schedules are in folders of users: they must not change, and
// no two dialects may have the same.
func TestOriginsOfDialectsWithVersion4(t *testing.T) {
	const google, risk, own = "https://safebrowsing.googleapis.com", "https://webrisk.googleapis.com", "http://127.0.0.1:1"
	for _, tc := range []struct {
		d        *Dialect
		address  string
		name     string
		schedule string
		before   []updater.Predecessor
	}{
		{DialectV5, google, google, "", []updater.Predecessor{{Name: google + " v4", Continues: true}, {Name: risk + " webrisk"}}},
		{DialectV4, google, google + " v4", "schedule-v4.json", []updater.Predecessor{{Name: google}, {Name: risk + " webrisk"}}},
		{DialectWebRisk, risk, risk + " webrisk", "schedule-webrisk.json", []updater.Predecessor{{Name: google}, {Name: google + " v4"}}},
		{DialectV5, own, own, "", []updater.Predecessor{{Name: own + " v4", Continues: true}, {Name: own + " webrisk"}}},
		{DialectV4, own, own + " v4", "schedule-v4.json", []updater.Predecessor{{Name: own}, {Name: own + " webrisk"}}},
		{DialectWebRisk, own, own + " webrisk", "schedule-webrisk.json", []updater.Predecessor{{Name: own}, {Name: own + " v4"}}},
	} {
		o := tc.d.Origin(tc.address, "asker")
		if o.Name != tc.name || o.Schedule != tc.schedule || o.Asker != "asker" || !slices.Equal(o.Predecessors, tc.before) {
			t.Errorf("%s at %s: got %+v", tc.d, tc.address, o)
		}
		if address, d := SplitOrigin(o.Name); address != tc.address || d != tc.d {
			t.Errorf("%q is split into %q and %s", o.Name, address, d)
		}
	}
}

func TestGooglesSafeBrowsingSpeaksVersion4AndItsWebRiskDoesNot(t *testing.T) {
	for endpoint, want := range map[string]bool{"": true, "https://safebrowsing.googleapis.com": true, "https://webrisk.googleapis.com": false, "http://127.0.0.1:1": true} {
		if DialectV4.Serves(endpoint) != want {
			t.Errorf("%q: expected %v", endpoint, want)
		}
	}
}

// "Update Constraints" of version 4.
func TestLimitsOfEntriesThatVersion4Knows(t *testing.T) {
	for entries, limit := range map[int]int{0: 0, 1: 1024, 1024: 1024, 1025: 1024, 2047: 1024, 2048: 2048, 1 << 20: 1 << 20, 1<<20 - 1: 1 << 19, 5_000_000: 1 << 20} {
		if got := DialectV4.MaxEntries(entries); got != limit {
			t.Errorf("expected %d to become %d, got %d", entries, limit, got)
		}
	}
}

func TestVersion4EndsAtGooglesServerOn31March2027(t *testing.T) {
	for _, tc := range []struct {
		now, want string
		over      bool
	}{
		{"2026-11-23T12:00:00Z", "Google ends Safe Browsing v4 on 31 March 2027, in 128 days: from then on its server may stop at any time, and then lists are not updated and names are not confirmed. Change protocol v4 to v5: the lists stay in force", false},
		{"2027-03-29T12:00:00Z", "Google ends Safe Browsing v4 on 31 March 2027, in 2 days: from then on its server may stop at any time, and then lists are not updated and names are not confirmed. Change protocol v4 to v5: the lists stay in force", false},
		{"2027-03-30T23:59:59Z", "Google ends Safe Browsing v4 on 31 March 2027, tomorrow: from then on its server may stop at any time, and then lists are not updated and names are not confirmed. Change protocol v4 to v5: the lists stay in force", false},
		{"2027-03-31T00:00:00Z", "Google has ended Safe Browsing v4 on 31 March 2027: its server may stop at any time, and then lists are not updated and names are not confirmed. Change protocol v4 to v5. DNS and your own lists keep working", true},
	} {
		now, err := time.Parse(time.RFC3339, tc.now)
		testkit.Must(t, err)
		for _, endpoint := range []string{"", DefaultEndpoint} {
			if e := DialectV4.EndingAt(endpoint); e.Text(now) != tc.want || e.Over(now) != tc.over {
				t.Errorf("%s: expected %q, over: %v, got %q", tc.now, tc.want, tc.over, e.Text(now))
			}
		}
		if e := DialectV4.EndingAt("http://127.0.0.1:8099"); e.Text(now) != "" || e.Over(now) {
			t.Errorf("A server of one's own: got %q", e.Text(now))
		}
		for _, d := range []*Dialect{DialectV5, DialectWebRisk} {
			if e := d.EndingAt(""); e.Text(now) != "" || e.Over(now) {
				t.Errorf("%s: got %q", d, e.Text(now))
			}
		}
	}
}

// A malformed answer to a search may have a minimum wait.
func TestTheMinimumWaitOfAMalformedSearchHolds(t *testing.T) {
	var asked []time.Time
	c := newV4(t, counted(marshal(t, &sbv4.FindFullHashesResponse{
		Matches:             []*sbv4.ThreatMatch{{Threat: &sbv4.ThreatEntry{Hash: []byte("short")}}},
		MinimumWaitDuration: durationpb.New(6 * time.Hour),
	}), &asked), "se-4b")
	synctest.Test(t, func(t *testing.T) {
		schedule, _ := updater.NewSchedule(nil)
		s := updater.Pace(c, schedule, updater.SearchRules{Backoff: updater.Strict}, func(updater.Event) {})
		s.Search(t.Context(), []lookup.Prefix{"abcd"})
		time.Sleep(time.Hour)
		s.Search(t.Context(), []lookup.Prefix{"abcd"})
		if len(asked) != 1 {
			t.Errorf("asked again after %s, minimum wait was 6h", asked[1].Sub(asked[0]))
		}
	})
}
