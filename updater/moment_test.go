package updater

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// No wait is shorter after a restart than what was left of it, whatever became of the wall
// clock, and none is longer than it was when it was saved.
func TestAWaitOutlivesAWallClockThatWasSet(t *testing.T) {
	const day = 24 * time.Hour
	saved := moment{Saved: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), Boot: "a", SinceBoot: 5 * day}
	for name, test := range map[string]struct {
		from   moment
		set    time.Duration // the wall clock, while nothing ran
		passed time.Duration
		boot   string        // at the restart
		offset time.Duration // of the clock since boot
		rest   time.Duration // of a wait of 3 hours
	}{
		"nothing was set":                  {saved, 0, time.Hour, "a", 0, 2 * time.Hour},
		"the wait is over":                 {saved, 0, 4 * time.Hour, "a", 0, -time.Hour},
		"forward by 10 minutes":            {saved, 10 * time.Minute, time.Hour, "a", 0, 2 * time.Hour},
		"forward by a day":                 {saved, day, time.Hour, "a", 0, 2 * time.Hour},
		"forward by 56 years":              {saved, 56 * 365 * day, time.Minute, "a", 0, 3*time.Hour - time.Minute},
		"forward, and at once":             {saved, day, 0, "a", 0, 3 * time.Hour},
		"back by 10 minutes":               {saved, -10 * time.Minute, time.Hour, "a", 0, 2*time.Hour + 10*time.Minute},
		"back by a day":                    {saved, -day, time.Hour, "a", 0, 3 * time.Hour},
		"back by a day, long ago":          {saved, -day, 2 * day, "a", 0, 3*time.Hour - day},
		"another boot":                     {saved, 0, time.Hour, "b", -5 * day, 2 * time.Hour},
		"another boot, forward":            {saved, 2 * time.Hour, time.Hour, "b", -5 * day, 0},
		"another boot, back":               {saved, -day, time.Hour, "b", -5 * day, 3 * time.Hour},
		"no boot is known any more":        {saved, 0, time.Hour, "", 0, 2 * time.Hour},
		"no boot was known":                {moment{Saved: saved.Saved}, 0, time.Hour, "a", 0, 2 * time.Hour},
		"never was a boot known":           {moment{Saved: saved.Saved}, 2 * time.Hour, time.Hour, "", 0, 0},
		"a container with a later offset":  {saved, 0, time.Hour, "a", 1000 * day, 2 * time.Hour},
		"a container, slightly earlier":    {saved, 0, time.Hour, "a", -30 * time.Minute, 2*time.Hour + 30*time.Minute},
		"a container, much earlier":        {saved, 0, time.Hour, "a", -4 * day, 2 * time.Hour},
		"a snapshot of the machine":        {saved, 0, time.Hour, "a", -time.Hour, 3 * time.Hour},
		"a snapshot, and the clock behind": {saved, -day, time.Hour, "a", -2 * time.Hour, 3 * time.Hour},
		"a time since boot that is absurd": {moment{saved.Saved, "a", -1 << 63}, 0, time.Hour, "a", 0, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			written := saved.Saved
			clock := Clock{NotBefore: written.Add(3 * time.Hour)}
			set := clockSet{Fetch: asked{Clock: clock}, Search: asked{Clock: clock}, Lists: map[string]ListClock{se: {Clock: clock}}}
			raw, err := encodeSchedule(scheduleState{clockSet: set, Others: map[string]clockSet{"other": set}}, written, test.from)
			must(t, err)
			now := time.Now()
			at := moment{Saved: written.Add(test.passed + test.set), Boot: test.boot, SinceBoot: saved.SinceBoot + test.passed + test.offset}
			state, err := parseSchedule(raw, now, at)
			must(t, err)
			for _, set := range []clockSet{state.clockSet, state.Others["other"]} {
				for _, c := range []Clock{set.Fetch.Clock, set.Search.Clock, set.Lists[se].Clock} {
					if rest := c.NotBefore.Sub(now); rest != test.rest || !strings.Contains(c.NotBefore.String(), "m=") { // setting the clock cuts no wait short
						t.Errorf("a wait of %s until %s, want %s on the monotonic clock", rest, c.NotBefore, test.rest)
					}
				}
			}
		})
	}
}

func TestTheLaterOfTwoMoments(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct{ earlier, later moment }{
		"of one boot":                  {moment{noon, "a", time.Hour}, moment{noon.Add(time.Hour), "a", 2 * time.Hour}},
		"of one boot, the clock back":  {moment{noon, "a", time.Hour}, moment{noon.Add(-time.Hour), "a", 2 * time.Hour}},
		"of two boots":                 {moment{noon, "a", 2 * time.Hour}, moment{noon.Add(time.Hour), "b", time.Hour}},
		"of a boot that is not known":  {moment{noon, "a", time.Hour}, moment{Saved: noon.Add(time.Hour)}},
		"of boots that are not known":  {moment{Saved: noon}, moment{Saved: noon.Add(time.Hour)}},
		"the first one has no file":    {moment{}, moment{noon, "a", time.Hour}},
		"the clock of one boot stands": {moment{noon, "a", time.Hour}, moment{noon, "a", time.Hour + 1}},
	} {
		if !test.later.after(test.earlier) || test.earlier.after(test.later) || test.later.after(test.later) {
			t.Errorf("%s: %+v is not told from %+v", name, test.earlier, test.later)
		}
	}
}

func TestVersionsThatKnowNoBootReadTheFileAndWriteIt(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := moment{Saved: now, Boot: "a", SinceBoot: time.Hour}
	state := scheduleState{Asker: "x", clockSet: clockSet{Fetch: asked{Clock: Clock{NotBefore: now.Add(time.Hour)}}, Lists: map[string]ListClock{}}}
	raw, err := encodeSchedule(state, now, at)
	must(t, err)
	var saved savedSchedule
	must(t, json.Unmarshal(raw, &saved))
	var old struct { // what such a version has
		Saved time.Time `json:"saved"`
		Asker string    `json:"asker,omitempty"`
		clockSet
	}
	must(t, json.Unmarshal(saved.Schedule, &old))
	if !old.Saved.Equal(now) || old.Asker != "x" || !old.Fetch.NotBefore.Equal(now.Add(time.Hour)) {
		t.Errorf("it reads %+v", old)
	}
	written, err := json.Marshal(old)
	must(t, err)
	back, err := parseSchedule(withSum(t, written), now, at)
	if err != nil || back.Boot != "" || back.SinceBoot != 0 || !back.Fetch.NotBefore.Equal(now.Add(time.Hour)) {
		t.Errorf("it wrote %+v, %v", back, err)
	}
	if bytes.Contains(written, []byte("boot")) {
		t.Errorf("it wrote %s", written)
	}
}

func TestTheIdentityOfTheBoot(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no identity of a boot is known for this system")
	}
	const variable = "SAFEBROWSING_BOOT_ID"
	t.Setenv(variable, "0123ab")
	id, since := thisBoot()
	_, later := thisBoot()
	if id != "0123ab" || since <= 0 || later < since {
		t.Errorf("boot %q since %s, then %s", id, since, later)
	}
	t.Setenv(variable, "")
	if id, since := thisBoot(); id != "" || since != 0 {
		t.Errorf("boot %q since %s without an identity", id, since)
	}
	os.Unsetenv(variable) // Setenv restores it
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip("the identity of the boot cannot be read here")
	}
	id, _ = thisBoot()
	t.Setenv(variable, strings.TrimSpace(string(raw)))
	if again, _ := thisBoot(); len(id) != 32 || strings.Contains(id, "-") || id != again {
		t.Errorf("boot %q, and %q by the variable; the system says %q", id, again, raw)
	}
}

// Our units hide the identity of the boot, and so must hand it over.
func TestUnitsThatHideTheIdentityOfTheBootHandItOver(t *testing.T) {
	units, err := filepath.Glob("../deploy/systemd/*.service")
	if err != nil || len(units) < 2 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		raw, err := os.ReadFile(unit)
		must(t, err)
		text := string(raw)
		if strings.Contains(text, "ProcSubset=pid") && !strings.Contains(text, "\nEnvironment=SAFEBROWSING_BOOT_ID=%b\n") {
			t.Errorf("%s does not set SAFEBROWSING_BOOT_ID", unit)
		}
	}
}
