package protocoltest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

func TestSearchOneAnswers(t *testing.T) {
	const unknown = 99
	inBubble(t, "types", func(b *bench) {
		evil, other := hash("evil.example.com/"), hash("other.example.com/")
		b.Publish("se-ext-4b", [][]byte{evil[:5]})
		b.Publish("se-4b", [][]byte{evil[:5], other[:4]})
		b.Publish("uws-4b", nil)
		b.diff("se-4b", "se-ext-4b", "uws-4b", "mw-4b")
		b.AddThreat("evil.example.com/", sbv5.ThreatType_UNWANTED_SOFTWARE)
		b.AddThreat("evil.example.com/", sbv5.ThreatType_SOCIAL_ENGINEERING, sbv5.ThreatAttribute_CANARY)
		b.AddThreat("evil.example.com/", sbv5.ThreatType_SOCIAL_ENGINEERING)
		b.AddThreat("evil.example.com/", sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION)
		b.AddThreat("evil.example.com/", unknown)
		b.AddExtendedThreat("evil.example.com/")
		b.SetCacheDuration(time.Minute)
		b.SetNegativeCacheDuration(time.Hour)
		ask := func(prefix []byte, lists ...string) string {
			b.ClientStarted() // asks again
			m, err := searchRisk(t, b, string(prefix), lists...)
			if err != nil {
				b.Fatal(err)
			}
			if !m.NegativeExpireTime.AsTime().Equal(time.Now().Add(time.Hour)) {
				b.Errorf("negative expire time %v", m.NegativeExpireTime.AsTime())
			}
			var got []string
			for _, threat := range m.Threats {
				got = append(got, fmt.Sprint(threat.ThreatTypes))
				if !threat.ExpireTime.AsTime().Equal(time.Now().Add(time.Minute)) {
					b.Errorf("expire time %v", threat.ExpireTime.AsTime())
				}
			}
			return strings.Join(got, " ")
		}
		for _, tt := range []struct {
			prefix []byte
			lists  []string
			want   string
		}{
			{evil[:5], []string{"se-4b"}, "[SOCIAL_ENGINEERING 99]"},
			{evil[:5], []string{"se-ext-4b", "uws-4b"}, "[UNWANTED_SOFTWARE 99 SOCIAL_ENGINEERING_EXTENDED_COVERAGE]"},
			{other[:4], []string{"se-ext-4b", "se-4b"}, ""},
		} {
			if got := ask(tt.prefix, tt.lists...); got != tt.want {
				b.Errorf("%x in %v: got %s, want %s", tt.prefix, tt.lists, got, tt.want)
			}
		}
		b.SetCacheDuration(-1)
		b.SetNegativeCacheDuration(-1)
		b.ClientStarted()
		if m, err := searchRisk(t, b, string(evil[:5]), "se-4b"); err != nil || m.NegativeExpireTime != nil || m.Threats[0].ExpireTime != nil {
			b.Errorf("got %v, %v, want an answer without expire times", m, err)
		}
		b.SetCacheDuration(time.Minute)
		b.SetNegativeCacheDuration(time.Hour)
		b.RemoveThreat("evil.example.com/")
		b.SetForeignHashes(make([]byte, 32))
		if got, want := ask(evil[:5], "se-4b", "se-ext-4b"), "[SOCIAL_ENGINEERING]"; got != want {
			b.Errorf("got %s, want the foreign hash as %s", got, want)
		}
		wantNone(b.T, b.violations.take())
		if got := b.Requests("search")[0]; got.Method != "searchOne" || string(got.Prefixes[0]) != string(evil[:5]) {
			b.Errorf("noted as %+v", got)
		}
		if n := len(b.Requests("update")); n != 4 {
			b.Errorf("%d requests for contents of lists, want 4", n)
		}
	})
}
