package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coredns/coredns/coremain"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestMisuseHasStatus2AndAHint(t *testing.T) {
	w := newWorld(t)
	none := t.TempDir() + "/none"
	for args, want := range map[string]string{
		"chekc":                       `there is no command "chekc", see safebrowsing -h`,
		"statsu":                      `there is no command "statsu": did you mean status? See safebrowsing -h`,
		"help statsu":                 `there is no command "statsu": did you mean status? See safebrowsing -h`,
		"help doctor status":          `help takes the name of one command, see safebrowsing -h`,
		"-json":                       "flag provided but not defined: -json, see safebrowsing -h",
		"why -jsno x":                 "flag provided but not defined: -jsno, see safebrowsing why -h",
		"why -db":                     "flag needs an argument: -db, see safebrowsing why -h",
		"status x":                    `status takes no argument such as "x"`,
		"expressions":                 "expressions takes names or URLs",
		"expressions -rule v6 a":      `-rule: "v6" is not a protocol: the protocols are v5`,
		"update -now":                 "no API key",
		"update -corefile x -db .":    "-corefile and -db are both given: keep one of the two",
		"update -corefile x -lists a": "-corefile and -lists are both given: keep one of the two",
		"update -corefile " + none:    "no such file",
		"update -db " + none:          "no API key: set $SAFEBROWSING_API_KEY, or -endpoint",
		"update -db . x":              `no argument such as "x"`,
		"update -db " + none + " -endpoint http://127.0.0.1:1 -lists bad":         "is not the name of a list",
		"update -db " + none + " -endpoint http://127.0.0.1:1 -lists se-4b,se-4b": "list se-4b is given more than once",
		"update -db " + none + " -endpoint nonsense":                              "the endpoint must be a URL",
		"relay -db x":                           "run safebrowsing-relay with the same flags",
		"doctor -corefile " + none:              "no such file",
		"validate":                              "there is no Corefile here: use -corefile",
		"doctor -corefile x y":                  `no argument such as "y"`,
		"completion":                            "completion takes the name of one shell: bash, zsh or fish",
		"completion bash zsh":                   "completion takes the name of one shell",
		"completion tcsh":                       `there is no completion for "tcsh", only for bash, zsh and fish`,
		"version x":                             `no argument such as "x"`,
		"testserver -lists none.txt":            "there, go run ./test/server -h",
		"doctor":                                "there is no Corefile here: use -corefile",
		"doctor -corefile x -endpoint http://x": "-corefile and -endpoint are both given",
		"doctor -redis redis://127.0.0.1":       "run safebrowsing-relay doctor",
		"doctor -corefile x -lists se-4b":       "-lists goes with -endpoint",
		"doctor -corefile x -api-key-file k":    "-api-key-file goes with -endpoint",
		"doctor -endpoint nonsense":             "endpoint: the endpoint must be a URL such as",
		"doctor -endpoint ENDPOINT,ENDPOINT":    "is given more than once",
		"doctor -endpoint ENDPOINT -lists x":    `lists: "x" is not the name of a list`,
		"doctor -endpoint http://192.0.2.1 -api-key-file /none": "api_key_file: open /none",
		"validate a b":             "validate takes one Corefile, see safebrowsing validate -h",
		"plan -popular 5":          "a share, from 0 to 1",
		"plan -lines 0":            "a number above 0",
		"plan -lines NaN":          "a number above 0",
		"plan -queries +Inf":       "a number above 0",
		"plan -life 25":            "up to 24 hours",
		"plan -price -1":           "0 to 1 US-$",
		"plan -entries 5e9":        "no more than 4294967295 prefixes",
		"plan -names 1e12":         "cannot ask for that number of names",
		"plan -zipf -1":            "an exponent is near 1",
		"plan -from /nowhere/here": "no such file",
		"plan more":                "takes flags only",
		"update -now -db DB -endpoint ENDPOINT -protocol webrisk -lists pha-4b":              `-lists: protocol webrisk has no list "pha-4b", only mw-4b, se-4b, se-ext-4b, uws-4b`,
		"update -now -db DB -endpoint https://safebrowsing.googleapis.com -protocol webrisk": "https://safebrowsing.googleapis.com does not speak protocol webrisk: leave out -endpoint, or name another protocol",
		"update -now -db DB -endpoint https://webrisk.googleapis.com -protocol webrisk":      "no API key: set $SAFEBROWSING_API_KEY",
	} {
		s := run(t, strings.Fields(strings.NewReplacer("ENDPOINT", w.endpoint, "DB", w.dir).Replace(args))...).want(2, want)
		s.mute()
		expect(t, "lines of "+args, strings.Count(s.errOut, "\n"), 1)
	}
	expect(t, "a misuse has made a folder", exists(none) || exists(w.dir), false)
}

func TestExamplesOfTheHelpWork(t *testing.T) {
	w := filled(t)
	here := t.TempDir()
	t.Chdir(here)
	write(t, "client.key", "OWN\n")
	corefile := w.corefile(t, usual)
	openDoor(t, w.dir, &running{report: status.Report{At: time.Now(), Services: []status.Service{{Title: "Safe Browsing v5"}}, Blocks: []status.Block{{Zones: "."}}}})
	replacer := strings.NewReplacer("/etc/coredns/Corefile", corefile, "/var/lib/coredns", w.dir,
		"./lists", here+"/lists", "http://127.0.0.1:8099", w.endpoint, "sudo -u coredns ", "", "SAFEBROWSING_API_KEY=... ", "", "'", "",
		" Corefile", " "+corefile, "COMMAND", "doctor")
	example := regexp.MustCompile(`(?m)^\s+((?:sudo -u coredns |SAFEBROWSING_API_KEY=\.\.\. )?safebrowsing (?:expressions|update|doctor|validate|version)(?: .*)?)$`)
	found := 0
	for _, command := range []string{"", "expressions", "update", "doctor", "validate", "version"} {
		_, help, _ := strings.Cut(run(t, append(strings.Fields(command), "-h")...).out, "DESCRIPTION")
		help, _, _ = strings.Cut(help, "OPTIONS")
		for _, m := range example.FindAllStringSubmatch(help, -1) {
			line, _, _ := strings.Cut(replacer.Replace(m[1]), " | ")
			line, _, _ = strings.Cut(line, " <")
			if strings.HasPrefix(line, "safebrowsing update -db "+w.dir) {
				line += " -endpoint " + w.endpoint
			}
			if strings.Contains(line, "-confirm") || strings.Contains(line, "-now") || strings.Contains(line, "doctor -endpoint") {
				w.ClientLostState()
			}
			run(t, strings.Fields(line)[1:]...).want(0)
			found++
		}
	}
	testkit.Between(t, "examples", found, 10, 1000)
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
		status := execute(t.Context(), append([]string{"safebrowsing"}, strings.Fields(args)...), os.Stdin, full, &errOut)
		expect(t, args, status, 2)
		testkit.WantParts(t, errOut.String(), "no space")
	}
}

func TestOnlyWarningsOfThePluginAreShown(t *testing.T) {
	var out testkit.Output
	l := &warnings{&out}
	for _, line := range []string{"[INFO] plugin/safebrowsing: all is well\n", "[WARNING] plugin/safebrowsing: bad line\n", "[DEBUG] x\n"} {
		n, err := l.Write([]byte(line))
		testkit.Must(t, err)
		expect(t, line, n, len(line))
	}
	expect(t, "log", out.String(), "[WARNING] plugin/safebrowsing: bad line\n")
}

func TestVersion(t *testing.T) {
	want := "safebrowsing " + say.Version + ", CoreDNS " + coremain.CoreVersion + ", " + runtime.Version()
	for _, args := range []string{"version", "--version", "-version"} {
		out := run(t, args).want(0).quiet().out
		testkit.WantStart(t, out, want)
		expect(t, args, strings.Count(out, "\n"), 1)
	}
	out := run(t, "version", "-json").want(0, `"version":"`, `"coredns":"`, `"go":"`, `"platform":"`, `"revision":"`, `"modified":`).out
	got := decode[build](t, out)[0]
	expect(t, "versions", []string{got.Version, got.CoreDNS, got.Go}, []string{say.Version, coremain.CoreVersion, runtime.Version()})
}

// A shell passes such a file for <(command): it can be read only once.
func TestACorefileMayBeAPipe(t *testing.T) {
	w := newWorld(t)
	r, pipe, err := os.Pipe()
	testkit.Must(t, err)
	defer r.Close()
	_, err = pipe.WriteString(". {\n safebrowsing {\n  block " + ownFile(t, "a.example") + "\n }\n}\n")
	testkit.Must(t, errors.Join(err, pipe.Close()))
	file := fmt.Sprintf("/dev/fd/%d", r.Fd())
	if _, err := os.Stat(file); err != nil {
		t.Skipf("This test needs /dev/fd: %v", err)
	}
	run(t, "doctor", "-offline", "-corefile", file).want(0, "corefile  1 of 1 server block has safebrowsing")
	w.wantRequests(t, "", 0)
}

func TestCommandsOfTheDocuments(t *testing.T) {
	root := filepath.Join("..", "..")
	var documents []string
	for _, pattern := range []string{"*.md", "docs/*.md", "bench/*.md", "test/*.md", "deploy/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		testkit.Must(t, err)
		documents = append(documents, found...)
	}
	seen := make(map[string]bool)
	// Command lines in blocks and in the text, without the name of the program and without comments. Stanzas are none.
	block := regexp.MustCompile(`(?m)^(?:sudo (?:-u \S+ )?)?(?:go run \./cmd/|source <\()?safebrowsing ([a-z][^#\n]*)`)
	inline := regexp.MustCompile("`(?:sudo )?safebrowsing ([a-z][^`]*)`")
	for _, name := range documents {
		text := read(t, name)
		for _, m := range append(block.FindAllStringSubmatch(text, -1), inline.FindAllStringSubmatch(text, -1)...) {
			line := strings.TrimRight(strings.TrimSpace(m[1]), ")")
			command := strings.Fields(line)[0]
			if filepath.Base(name) == "CHANGELOG.md" && (command == "testserver" || command == "relay") {
				continue // which earlier versions had
			}
			seen[command] = true
			expect(t, name+": safebrowsing "+line, helpOf(t, line), "")
		}
	}
	for _, c := range command().Commands {
		expect(t, "the documents have safebrowsing "+c.Name, c.Hidden || seen[c.Name], true)
	}
}

// helpOf asks a command for its help with the flags of a command line. It says whether the command or a flag does not exist.
func helpOf(t *testing.T, line string) (trouble string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " <")
	words := strings.Fields(line)
	c := command()
	c.Writer, c.ErrWriter = new(testkit.Output), new(testkit.Output)
	sub := c.Command(words[0])
	if sub == nil {
		return "there is no such command"
	}
	args := []string{"safebrowsing", words[0]}
	for i, word := range words[1:] { // without names, which help would take for a topic
		if strings.HasPrefix(word, "-") && word != "-" || takesValue(sub, words[i]) {
			args = append(args, word)
		}
	}
	if err := c.Run(t.Context(), append(args, "-h")); err != nil {
		return err.Error()
	}
	return ""
}

// SECURITY.md: the key is in no error. People run these commands when something is wrong, and post what they print.
func TestNoCommandPrintsAKeyFromAWrongPlaceOfTheCorefile(t *testing.T) {
	testkit.Long(t)
	w := newWorld(t)
	lines := testkit.Capture(t)
	t.Setenv("STATE_DIRECTORY", filepath.Join(t.TempDir(), "db"))
	dir := t.TempDir()
	for _, secret := range []string{testkit.Key, testkit.Token} {
		check := func(stanza string, commands ...[]string) {
			for _, command := range commands {
				s := run(t, command...)
				expect(t, fmt.Sprintf("%q: %q prints a key: %s%s", stanza, command, s.out, s.errOut), testkit.Leaks(s.out+s.errOut, secret), false)
			}
		}
		for i, stanza := range testkit.Stanzas(config.Usages(), secret) {
			path := testkit.Write(t, dir, "Corefile", ".:5353 {\n"+stanza+"\n}\n")
			check(stanza, []string{"doctor", "-offline", "-corefile", path})
			if i%7 == 0 { // it is refused, and all of them say the same: some are enough
				check(stanza, []string{"status", "-corefile", path}, []string{"why", "-corefile", path, "www.example.org"}, []string{"allow", "-corefile", path, "www.example.org"})
			}
		}
		check("", []string{"why", secret}, []string{"doctor", "-corefile", secret}, []string{"-" + secret}, []string{secret}, []string{"update", "-db", secret + "/x", "-endpoint", "KEY" + secret},
			[]string{"doctor", "-offline", "-endpoint", w.endpoint + "/?key=" + secret}, []string{"doctor", "-offline", "-endpoint", w.endpoint, "-api-key-file", secret})
		expect(t, "the log", lines.About(secret), nil)
	}
}
