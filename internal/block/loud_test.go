package block

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

var phished = lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByServer, Threat: lookup.SocialEngineering, List: "se-4b"}

func question(name string) dns.Question {
	return dns.Question{Name: name, Qtype: dns.TypeA, Qclass: dns.ClassINET}
}

func TestAFamiliarNameThatIsBlockedIsLoudOnceADay(t *testing.T) {
	lines := testkit.Capture(t)
	now := time.Now()
	l := &loudness{familiar: newFamiliarity(now)}
	for range 3000 { // 1000 an hour in 3 hours; a sample of 190 is off by a fifth at most
		l.familiar.count(lookup.FromQname("WWW.familiar.example."))
	}
	for range 20 { // far from the 180 that make it familiar
		l.familiar.count(lookup.FromQname("www.rare.example."))
	}
	now = now.Add(3 * time.Hour)
	own := phished
	own.By = lookup.ByBlock
	l.blocked(question("www.familiar.example."), own, now)
	l.blocked(question("www.rare.example."), phished, now)
	l.blocked(question("www.new.example."), phished, now)
	if got := lines.About("times an hour"); len(got) != 0 {
		t.Errorf("Expected no line yet, got %q", got)
	}
	for range 3 {
		l.blocked(question("www.familiar.example."), phished, now)
	}
	got := lines.About("[WARNING] plugin/safebrowsing: www.familiar.example is blocked now (suspected social engineering, list se-4b), and was asked for about ")
	if len(got) != 1 || !strings.Contains(got[0], "safebrowsing allow -for 1d www.familiar.example") {
		t.Errorf("Expected one line, got %q", got)
	}
	l.blocked(question("wWw.FAMILIAR.eXample."), phished, now) // 0x20
	if got := lines.About("times an hour"); len(got) != 1 {
		t.Errorf("Expected one line whatever the case, got %q", got)
	}
	l.familiar.add(lookup.FromQname("www.familiar.example."), 1000)
	l.blocked(question("www.familiar.example."), phished, now.Add(24*time.Hour))
	if got := lines.About("www.familiar.example is blocked now"); len(got) != 2 {
		t.Errorf("Expected another line the next day, got %q", got)
	}
}

// An operator may copy the command into a shell.
func TestTheLineAboutAFamiliarNameHasNoCommandsOfAClient(t *testing.T) {
	for name, want := range map[string]string{
		"www.familiar.example":      "safebrowsing allow -for 1d www.familiar.example",
		"_dmarc.Familiar-1.example": "safebrowsing allow -for 1d _dmarc.Familiar-1.example",
		"$`reboot`.example":         "add the host to a file of allow",
		"|reboot|x.example":         "add the host to a file of allow",
		"x>y.example":               "add the host to a file of allow",
		"-list.example":             "add the host to a file of allow",
	} {
		lines := testkit.Capture(t)
		l := &loudness{familiar: newFamiliarity(time.Now())}
		l.familiar.add(lookup.FromQname(name+"."), 10000)
		l.blocked(question(name+"."), phished, time.Now().Add(time.Hour))
		if got := lines.About("times an hour"); len(got) != 1 || !strings.Contains(got[0], "If this is a mistake: "+want+"\n") {
			t.Errorf("%s: expected %q, got %q", name, want, got)
		}
	}
}

func TestFamiliarityIsAMeanOfAboutADay(t *testing.T) {
	begin := time.Now()
	f := newFamiliarity(begin)
	h := lookup.FromQname("www.example.com.")
	f.add(h, 100)
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{time.Minute, 1600}, {2 * time.Hour, 800}, {16 * time.Hour, 100}, {32 * time.Hour, 50}, {33 * time.Hour, 47}, {-time.Hour, 800}} {
		if got := f.perHour(h, begin.Add(tt.after)); got != tt.want {
			t.Errorf("after %v: %d an hour, want %d", tt.after, got, tt.want)
		}
	}
	f = newFamiliarity(begin)
	for i := range 2000 { // other names: each could share one counter
		f.add(lookup.FromQname(fmt.Sprintf("n%d.example.", i)), 100)
	}
	shared := 0
	for i := range 1000 {
		if f.perHour(lookup.FromQname(fmt.Sprintf("m%d.example.", i)), begin) > 0 {
			shared++
		}
	}
	if shared > 150 { // (1-exp(-2000/8192))² = 4.7 %
		t.Errorf("%d of 1000 names are taken for familiar ones", shared)
	}
}
