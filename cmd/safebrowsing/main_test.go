package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coredns/coredns/coremain"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestMisuseHasStatus2AndAHint(t *testing.T) {
	t.Setenv(config.KeyVariable, "")
	t.Setenv("STATE_DIRECTORY", t.TempDir()+"/none")
	none := t.TempDir() + "/none"
	for args, want := range map[string]string{
		"chekc":                       `there is no command "chekc", see safebrowsing -h`,
		"statsu":                      `there is no command "statsu": did you mean status? See safebrowsing -h`,
		"frobnicate":                  `there is no command "frobnicate", see safebrowsing -h`,
		"help statsu":                 `there is no command "statsu": did you mean status? See safebrowsing -h`,
		"help doctor status":          `help takes the name of one command, see safebrowsing -h`,
		"-json":                       "flag provided but not defined: -json, see safebrowsing -h",
		"why -jsno x":                 "flag provided but not defined: -jsno, see safebrowsing why -h",
		"why -db":                     "flag needs an argument: -db, see safebrowsing why -h",
		"status x":                    `status takes no argument such as "x"`,
		"expressions":                 "expressions takes names or URLs",
		"expressions -rule v6 a":      `-rule: "v6" is not a protocol: the protocols are v5`,
		"update -now":                 "no API key",
		"coverage":                    "coverage takes one file, or - for standard input, see safebrowsing coverage -h",
		"update -corefile x -db .":    "-corefile and -db are both given: keep one of the two",
		"update -corefile x -lists a": "-corefile and -lists are both given: keep one of the two",
		"update -corefile " + none:    "no such file",
		"update -db " + none:          "no API key: set $SAFEBROWSING_API_KEY, or -endpoint",
		"update -db . x":              `no argument such as "x"`,
		"update -db " + none + " -endpoint http://127.0.0.1:1 -lists bad":         "is not the name of a list",
		"update -db " + none + " -endpoint http://127.0.0.1:1 -lists se-4b,se-4b": "list se-4b is given more than once",
		"update -db " + none + " -endpoint nonsense":                              "the endpoint must be a URL",
		"doctor":                         "there is no Corefile here: use -corefile",
		"relay -db x":                    "run safebrowsing-relay with the same flags",
		"doctor -corefile " + none:       "no such file",
		"validate":                       "there is no Corefile here: use -corefile",
		"validate a b":                   "validate takes one Corefile, see safebrowsing validate -h",
		"doctor -corefile x -endpoint y": "-corefile and -endpoint are both given",
		"doctor -corefile x y":           `no argument such as "y"`,
		"help tcsh":                      `there is no command "tcsh", see safebrowsing -h`,
		"completion":                     "completion takes the name of one shell: bash, zsh or fish",
		"completion tcsh":                `there is no completion for "tcsh", only for bash, zsh and fish`,
		"completion bash zsh":            "completion takes the name of one shell",
		"version x":                      `no argument such as "x"`,
		"testserver":                     "there, go run ./test/server -h",
		"testserver -lists none.txt":     "there, go run ./test/server -h",
	} {
		status, _, errOut := invoke(t, strings.Fields(args)...)
		if status != 2 || !strings.Contains(errOut, want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("safebrowsing %s: status %d, %q, want 2 and a line with %q", args, status, errOut, want)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a misuse has made a folder")
	}
}

// The examples of the help run with the files and the server of the test.
func TestExamplesOfTheHelpWork(t *testing.T) {
	w := filled(t)
	here := t.TempDir()
	t.Chdir(here)
	write(t, "client.key", "OWN\n")
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n }\n}\n")
	_, release, err := new(control.Doors).Open(w.dir, &running{report: status.Report{At: time.Now(), Services: []status.Service{{Title: "Safe Browsing v5"}}, Blocks: []status.Block{{Zones: "."}}}})
	testkit.Must(t, err)
	defer release()
	replacer := strings.NewReplacer("/etc/coredns/Corefile", corefile, "/var/lib/coredns", w.dir,
		"./lists", here+"/lists", "http://127.0.0.1:8099", w.endpoint, "sudo -u coredns ", "", "SAFEBROWSING_API_KEY=... ", "", "'", "",
		" Corefile", " "+corefile, "COMMAND", "doctor")
	example := regexp.MustCompile(`(?m)^\s+((?:sudo -u coredns |SAFEBROWSING_API_KEY=\.\.\. )?safebrowsing (?:expressions|update|doctor|validate|version)(?: .*)?)$`)
	found := 0
	for _, command := range []string{"", "expressions", "update", "doctor", "validate", "version"} {
		_, help, _ := invoke(t, append(strings.Fields(command), "-h")...)
		_, help, _ = strings.Cut(help, "DESCRIPTION")
		help, _, _ = strings.Cut(help, "OPTIONS")
		for _, m := range example.FindAllStringSubmatch(help, -1) {
			line, _, _ := strings.Cut(replacer.Replace(m[1]), " | ")
			line, _, _ = strings.Cut(line, " <")
			want := 0
			if strings.HasPrefix(line, "safebrowsing update -db "+w.dir) {
				line += " -endpoint " + w.endpoint
			}
			if strings.Contains(line, "-confirm") || strings.Contains(line, "-now") || strings.Contains(line, "doctor -endpoint") {
				w.ClientLostState()
			}
			status, out, errOut := invoke(t, strings.Fields(line)[1:]...)
			if status != want {
				t.Errorf("%s: status %d, want %d: %s%s", line, status, want, out, errOut)
			}
			found++
		}
	}
	if found < 10 {
		t.Errorf("found %d examples", found)
	}
}

// A full disk must not look like good news.
func TestOutputThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("This test needs /dev/full: %v", err)
	}
	defer full.Close()
	for _, args := range []string{"expressions a.example", "expressions -json a.example"} {
		var errOut testkit.Output
		if status := execute(t.Context(), append([]string{"safebrowsing"}, strings.Fields(args)...), os.Stdin, full, &errOut); status != 2 || !strings.Contains(errOut.String(), "no space") {
			t.Errorf("%s: status %d, %s", args, status, &errOut)
		}
	}
}

func TestOnlyWarningsOfThePluginAreShown(t *testing.T) {
	var out testkit.Output
	l := &warnings{&out}
	for _, line := range []string{"[INFO] plugin/safebrowsing: all is well\n", "[WARNING] plugin/safebrowsing: bad line\n", "[DEBUG] x\n"} {
		if n, err := l.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%q: %d, %v", line, n, err)
		}
	}
	expect(t, "log", out.String(), "[WARNING] plugin/safebrowsing: bad line\n")
}

func TestVersion(t *testing.T) {
	want := "safebrowsing " + say.Version + ", CoreDNS " + coremain.CoreVersion + ", " + runtime.Version()
	for _, args := range []string{"version", "--version", "-version"} {
		status, out, errOut := invoke(t, args)
		if status != 0 || errOut != "" || !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: status %d, %q, %s, want %s", args, status, out, errOut, want)
		}
	}
	_, out, _ := invoke(t, "version", "-json")
	expect(t, "keys", keys(out), "version coredns go platform revision modified")
	if got := decode[build](t, out)[0]; got.Version != say.Version || got.CoreDNS != coremain.CoreVersion || got.Go != runtime.Version() {
		t.Errorf("got %+v", got)
	}
}

func TestWarningsOfTheCorefileAreToldOnce(t *testing.T) {
	w := newWorld(t)
	corefile := w.corefile(t, "(mine) {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  lists se-4b pha4-4b\n }\n}\na.example {\n import mine\n}\nb.example {\n import mine\n}\n")
	_, out, _ := invoke(t, "doctor", "-offline", "-corefile", corefile)
	if n := strings.Count(out, "warning  corefile  "+corefile+":5"); n != 1 || !strings.Contains(out, "did you mean pha-4b?") {
		t.Errorf("doctor: %d warnings, %s", n, out)
	}
}

// A shell passes such a file for <(command): it can be read only once.
func TestACorefileMayBeAPipe(t *testing.T) {
	w := newWorld(t)
	r, pipe, err := os.Pipe()
	testkit.Must(t, err)
	defer r.Close()
	if _, err := pipe.WriteString(". {\n safebrowsing {\n  block " + ownFile(t, "a.example") + "\n }\n}\n"); err != nil {
		t.Fatal(err)
	}
	pipe.Close()
	file := fmt.Sprintf("/dev/fd/%d", r.Fd())
	if _, err := os.Stat(file); err != nil {
		t.Skipf("This test needs /dev/fd: %v", err)
	}
	if _, out, errOut := invoke(t, "doctor", "-offline", "-corefile", file); !strings.Contains(out, "corefile  1 of 1 server block has safebrowsing") {
		t.Errorf("%s%s", out, errOut)
	}
	if n := len(w.Requests("")); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestNamesAreReadFromStandardInput(t *testing.T) {
	in := "\uFEFF# mine\n\n  safe.example  0.0.0.0 # seen yesterday\r\n#evil.example\nmal.example\nhttps://b.example/x"
	status, out, errOut := feed(t, in, "expressions", "-json", "a.example", "-", "c.example")
	if status != 0 || errOut != "" {
		t.Errorf("status %d, %s", status, errOut)
	}
	var got []string
	for _, c := range decode[expressed](t, out) {
		got = append(got, string(c.Input))
	}
	expect(t, "names", strings.Join(got, " "), "a.example safe.example mal.example https://b.example/x c.example")
	if status, _, errOut := feed(t, "a.example\n"+strings.Repeat("x", 1<<17), "expressions", "-"); status != 2 || !strings.Contains(errOut, "reading names from standard input: ") {
		t.Errorf("a line without an end: status %d, %s", status, errOut)
	}
}

// An answer comes before the next name is written, and a user can stop the command.
func TestNamesAreReadAsTheyCome(t *testing.T) {
	in, names := io.Pipe()
	defer names.Close()
	out, errOut := new(testkit.Output), new(testkit.Output)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() { ended <- execute(ctx, []string{"safebrowsing", "expressions", "-"}, in, out, errOut) }()
	if _, err := names.Write([]byte("safe.example\n")); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "an answer before the last name", func() bool { return strings.Contains(out.String(), "safe.example/") })
	cancel()
	if status := <-ended; status != 2 || !strings.Contains(errOut.String(), context.Canceled.Error()) {
		t.Errorf("stopped: status %d, %s", status, errOut)
	}
}

func TestAReadThatFailsIsNoEnd(t *testing.T) {
	broken := errors.New("the pipe is broken")
	in, names := io.Pipe()
	names.CloseWithError(broken)
	if err := eachName(t.Context(), []string{"-"}, in, func(string) {}); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}
