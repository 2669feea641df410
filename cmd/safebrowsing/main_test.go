package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
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
	if err != nil {
		t.Fatal(err)
	}
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
