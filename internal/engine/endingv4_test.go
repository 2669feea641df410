package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestTheEndOfVersion4IsAWarningUntilTheDayAndAnErrorFromThenOn(t *testing.T) {
	s := Settings{Protocol: protocol.DialectV4.Name, Lists: "se-4b", DB: t.TempDir()}
	end := s.Dialect().EndingAt("").At
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		time.Sleep(time.Until(end.Add(-10 * time.Hour)))
		google := listing(t, 0)
		e, stop := life(t, s, google, 0)
		testkit.WantParts(t, lines.Only(t, "Google ends"), "[WARNING]", "Safe Browsing v4 on 31 March 2027, tomorrow", "Change protocol v4 to v5: the lists stay in force")
		got := e.Standing(time.Now())
		testkit.Equal(t, "the end on the page", []any{got.Ending, got.Ended}, []any{s.Ending().Text(time.Now()), false})
		time.Sleep(10*time.Hour - time.Second)
		testkit.WantNone(t, lines.String(), "Google has ended")
		time.Sleep(time.Minute)
		testkit.WantParts(t, lines.Only(t, "Google has ended"), "[ERROR]", "Change protocol v4 to v5. DNS and your own lists keep working")
		testkit.Equal(t, "lists in force", len(e.Lists()), 1)
		stop()

		lines.Forget()
		_, stop = life(t, s, google, 0)
		testkit.WantParts(t, lines.Only(t, "Google has ended"), "[ERROR]")
		stop()

		lines.Forget()
		s.Endpoint, s.DB = "http://v4.example", ""
		_, stop = life(t, s, google, time.Minute)
		stop()
		s.Endpoint, s.Protocol = "", protocol.DialectV5.Name
		_, stop = life(t, s, google, time.Minute)
		stop()
		testkit.WantNone(t, lines.String(), "Google")
	})
}

// From then on a refusal is no trouble of the key or of a list.
func TestAfterTheEndOfVersion4ARefusalSaysThatItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reporting(t, Settings{Protocol: protocol.DialectV4.Name, Lists: "se-4b"})
		for _, over := range []bool{false, true} {
			for code, refuses := range map[int]bool{400: true, 403: true, 404: true, 410: true, 429: false, 503: false} {
				got := r.hint(&updater.StatusError{Code: code}, time.Time{})
				testkit.Equal(t, got, strings.Contains(got, "Change protocol v4 to v5") && !strings.Contains(got, "Check the"), over && refuses)
			}
			time.Sleep(time.Until(r.settings.Ending().At))
		}
	})
}

func TestEnginesOfTwoVersionsAtGooglesServerWaitForEachOther(t *testing.T) {
	pair{Settings{Protocol: protocol.DialectV4.Name}, Settings{Protocol: protocol.DialectV5.Name}, true}.try(t)
}

func TestAMinimumWaitOfVersion4AboveADayIsOneWarning(t *testing.T) {
	wantLongWaits(t, protocol.DialectV4, "for lists se-4b, mw-4b. It is obeyed")
}
