package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
)

func TestTheDoctorWarnsOfAPause(t *testing.T) {
	ownWorld(t, "block block.txt")
	t.Setenv("STATE_DIRECTORY", "state")
	if err := os.Mkdir("state", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, want string }{
		{"", ""},
		{"all", "warning  pause     all server blocks block nothing until TIME, or until CoreDNS is restarted, by state/paused"},
		{".", "warning  pause     the server blocks for . block nothing until TIME, by state/paused"},
	} {
		if tt.args != "" {
			write(t, "state/paused", string(block.FormatPauses([]block.Pause{{Zone: tt.args, From: time.Now(), Until: time.Now().Add(time.Hour), Keep: tt.args == "."}})))
		}
		_, out, _ := invoke(t, "doctor", "-offline", "-corefile", "Corefile")
		if got := wordedTimes(out); tt.want == "" && strings.Contains(got, "pause") || !strings.Contains(got, tt.want+"\n") {
			t.Errorf("%s: want %q in\n%s", tt.args, tt.want, got)
		}
	}
	write(t, "state/paused", "nonsense\n")
	if _, out, _ := invoke(t, "doctor", "-offline", "-corefile", "Corefile"); !strings.Contains(out, `state/paused pauses nothing: the line "nonsense" is not a pause`) {
		t.Errorf("a damaged file: %s", out)
	}
}
