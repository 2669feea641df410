package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
)

func TestPause(t *testing.T) {
	const file = "db/paused"
	for _, tt := range []struct {
		name, lines string // the arguments of each command, one a line
		status      int
		out         string // of the last one
		want        string // "zone length keep" of each pause in the file
	}{
		{"all", "10m", 0, "Paused until TIME, or until CoreDNS is restarted: all server blocks (db/paused)\n", "all 10m0s false"},
		{"kept", "-keep 2d", 0, "Paused until TIME, also if CoreDNS is restarted: all server blocks (db/paused)\n", "all 48h0m0s true"},
		{"one block", "-block Example.org 1h", 0, "Paused until TIME, or until CoreDNS is restarted: the server blocks for example.org. (db/paused)\n", "example.org. 1h0m0s false"},
		{"one, then all", "-block example.org 1h\n5m", 0, "Paused until TIME, or until CoreDNS is restarted: all server blocks (db/paused)\n", "all 5m0s false"},
		{"longer", "5m\n10m", 0, "Paused until TIME, or until CoreDNS is restarted: all server blocks (db/paused)\n", "all 10m0s false"},
		{"off", "5m\noff", 0, "Nothing is paused (db/paused)\n", ""},
		{"off without a pause", "off", 0, "Nothing is paused (db/paused)\n", ""},
		{"off for one block", "-block example.org 1h\n-block . 2h\noff -block example.org", 0, "Paused until TIME, or until CoreDNS is restarted: the server blocks for . (db/paused)\n", ". 2h0m0s false"},
		{"one block leaves all", "1h\noff -block .", 0, "Paused until TIME, or until CoreDNS is restarted: all server blocks (db/paused)\n", "all 1h0m0s false"},
		{"what is paused", "5m\n", 0, "Paused until TIME, or until CoreDNS is restarted: all server blocks (db/paused)\n", "all 5m0s false"},
		{"nothing is paused", "", 0, "Nothing is paused (db/paused)\n", ""},
		{"JSON", "-json -keep 5m", 0, `{"file":"db/paused","zone":"all","until":"TIME","keep":true}` + "\n", "all 5m0s true"},
		{"unknown zone", "-block example.net 5m", 2, "safebrowsing: no server block of Corefile checks the zone example.net., only: ., example.org.\n", ""},
		{"too long", "8d", 2, "safebrowsing: \"8d\" is more than 7 days\n", ""},
		{"no duration", "soon", 2, "safebrowsing: \"soon\" is not a duration such as 30m, 2h or 7d\n", ""},
		{"two durations", "1h 2h", 2, "safebrowsing: pause takes one duration such as 10m, or off, see safebrowsing pause -h\n", ""},
		{"keep of nothing", "off -keep", 2, "safebrowsing: -keep is for a pause: give its duration too\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ownWorld(t, "endpoint http://127.0.0.1:1\n  db db\n }\n}\nexample.org {\n safebrowsing {\n  endpoint http://127.0.0.1:1\n  db db")
			if err := os.Mkdir("db", 0o700); err != nil {
				t.Fatal(err)
			}
			var status int
			var out, errOut string
			for _, line := range strings.Split(tt.lines, "\n") {
				status, out, errOut = invoke(t, append([]string{"pause"}, strings.Fields(line)...)...)
			}
			got := wordedTimes(out + errOut)
			if status != tt.status || got != tt.out {
				t.Errorf("status %d, want %d:\n%swant:\n%s", status, tt.status, got, tt.out)
			}
			var in []string
			raw, _ := os.ReadFile(file)
			all, err := block.ParsePauses(raw)
			for _, p := range all {
				if ago := time.Since(p.From); ago < 0 || ago > time.Minute {
					t.Errorf("Expected a pause from now on, got %v", p.From)
				}
				in = append(in, strings.Join([]string{p.Zone, p.Until.Sub(p.From).String(), map[bool]string{true: "true", false: "false"}[p.Keep]}, " "))
			}
			if got := strings.Join(in, "; "); got != tt.want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// A folder that CoreDNS does not have would not be looked at.
func TestPauseWithoutAFolderSaysSo(t *testing.T) {
	dir := ownWorld(t, "endpoint http://127.0.0.1:1\n  db nowhere")
	status, _, errOut := invoke(t, "pause", "5m")
	if status != 2 || !strings.Contains(errOut, "no such file or directory; start CoreDNS first") {
		t.Errorf("status %d, %q", status, errOut)
	}
	if _, err := os.Stat(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("the command has made a folder")
	}
	if status, out, errOut := invoke(t, "pause"); status != 0 || !strings.HasPrefix(out, "Nothing is paused") {
		t.Errorf("status %d, %q", status, errOut)
	}
	if err := os.Mkdir("nowhere", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "nowhere/paused", "nonsense\n")
	if status, _, errOut := invoke(t, "pause"); status != 2 || !strings.Contains(errOut, `nowhere/paused: the line "nonsense" is not a pause`) {
		t.Errorf("status %d, %q", status, errOut)
	}
	if status, _, errOut := invoke(t, "pause", "off"); status != 0 || errOut != "" {
		t.Errorf("status %d, %q", status, errOut)
	}
	if status, _, errOut := invoke(t, "pause"); status != 0 || errOut != "" {
		t.Errorf("status %d, %q", status, errOut)
	}
}

// A CoreDNS that starts ends a pause of before.
func TestPauseSaysThatCoreDNSIsNotRunning(t *testing.T) {
	ownWorld(t, "endpoint http://127.0.0.1:1\n  db db")
	if err := os.Mkdir("db", 0o700); err != nil {
		t.Fatal(err)
	}
	const says = "safebrowsing: CoreDNS is not running; when it starts it ends a pause that is without -keep\n"
	coredns := flock.New("db/lock")
	for _, tt := range []struct {
		name   string
		change func() error
		args   string
		want   string
	}{
		{"no program has used the folder", func() error { return nil }, "5m", ""},
		{"CoreDNS runs", coredns.Lock, "5m", ""},
		{"CoreDNS has ended", coredns.Unlock, "5m", says},
		{"its pause is shown", func() error { return nil }, "", says},
		{"its pause is ended", func() error { return nil }, "off", ""},
		{"the pause is kept", func() error { return nil }, "-keep 5m", ""},
	} {
		if err := tt.change(); err != nil {
			t.Fatal(err)
		}
		if status, _, errOut := invoke(t, append([]string{"pause"}, strings.Fields(tt.args)...)...); status != 0 || errOut != tt.want {
			t.Errorf("%s: status %d, %q, want %q", tt.name, status, errOut, tt.want)
		}
	}
}

// Root must not be led to a file elsewhere by the user of CoreDNS, who owns the folder.
func TestPauseFollowsNoSymlink(t *testing.T) {
	ownWorld(t, "endpoint http://127.0.0.1:1\n  db db")
	write(t, "precious", "precious\n")
	for _, err := range []error{os.Mkdir("db", 0o700), os.Symlink("../precious", "db/paused")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	status, _, errOut := invoke(t, "pause", "5m")
	if status != 2 || !strings.Contains(errOut, "db/paused is not a regular file") || read(t, "precious") != "precious\n" {
		t.Errorf("status %d, %q, %q", status, errOut, read(t, "precious"))
	}
}

func TestTheDoctorWarnsOfAPause(t *testing.T) {
	ownWorld(t, "block block.txt")
	t.Setenv("STATE_DIRECTORY", "state")
	if err := os.Mkdir("state", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, want string }{
		{"off", ""},
		{"1h", "warning  pause     all server blocks block nothing until TIME, or until CoreDNS is restarted, by state/paused"},
		{"-keep -block . 1h", "warning  pause     the server blocks for . block nothing until TIME, by state/paused"},
	} {
		if status, _, errOut := invoke(t, append([]string{"pause"}, strings.Fields(tt.args)...)...); status != 0 {
			t.Fatalf("%s: %s", tt.args, errOut)
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
