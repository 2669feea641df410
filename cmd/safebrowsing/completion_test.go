package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// TestMain lets the test binary run as the command if it is started by that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "safebrowsing" {
		main()
	}
	testkit.Noon()
	os.Setenv("RUNTIME_DIRECTORY", filepath.Join(os.TempDir(), "no-server-is-here")) // tests ask no server of this machine
	os.Setenv("SAFEBROWSING_BOOT_ID", "")                                            // the time of a bubble is not that since boot
	if cache, err := os.UserCacheDir(); err == nil && os.Getenv("GOCACHE") == "" {
		os.Setenv("GOCACHE", filepath.Join(cache, "go-build"))
	}
	cache, err := os.MkdirTemp("", "cache") // of the default db: nor one that another test runs
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CACHE_HOME", cache)
	status := m.Run()
	os.RemoveAll(cache)
	os.Exit(status)
}

// inShell runs a script with the command in its path and without the user's settings.
func inShell(t *testing.T, shell string, args ...string) string {
	t.Helper()
	testkit.Program(t, shell)
	program, err := os.Executable()
	testkit.Must(t, err)
	home := t.TempDir()
	testkit.Must(t, os.Symlink(program, filepath.Join(home, "safebrowsing")))
	write(t, filepath.Join(home, "names.txt"), "")
	c := exec.CommandContext(t.Context(), shell, args...)
	c.Dir, c.Env = home, []string{"PATH=" + home + ":" + os.Getenv("PATH"), "HOME=" + home, "TERM=dumb"}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", shell, err)
	}
	return string(out)
}

// bash runs without its start-up files, and so without the package bash-completion.
func TestBashCompletes(t *testing.T) {
	testkit.Long(t)
	out := inShell(t, "bash", "--norc", "--noprofile", "-c", `
source <(safebrowsing completion bash)
complete -p safebrowsing
words() { COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _safebrowsing; echo "$*: ${COMPREPLY[*]}"; }
words safebrowsing wh
words ~/safebrowsing doc
words '~/safebrowsing' doc
words safebrowsing why -co
words safebrowsing why --co
words safebrowsing why -corefile nam
words safebrowsing completion ''
`)
	home, _, _ := strings.Cut(out[strings.Index(out, "/"):], "/safebrowsing")
	expect(t, "bash", strings.ReplaceAll(out, home, "HOME"), `complete -o bashdefault -o default -F _safebrowsing safebrowsing
safebrowsing wh: why
HOME/safebrowsing doc: doctor
~/safebrowsing doc: doctor
safebrowsing why -co: -confirm -corefile
safebrowsing why --co: --confirm --corefile
safebrowsing why -corefile nam: 
safebrowsing completion : bash zsh fish
`)
}

func TestZshCompletes(t *testing.T) {
	out := inShell(t, "zsh", "-f", "-c", `
compdef() { echo "compdef $*" }
_describe() { print -l -- "${(@P)2}" }
_files() { echo files }
source <(safebrowsing completion zsh)
words=(safebrowsing wh) CURRENT=2; _safebrowsing
words=(safebrowsing why -co a.example) CURRENT=3; _safebrowsing
words=(safebrowsing why -corefile nam) CURRENT=4; _safebrowsing
`)
	expect(t, "zsh", out, `compdef _safebrowsing safebrowsing
why:print whether names are blocked, and why
-confirm:ask the service to confirm suspected names
-corefile:the COREFILE of the server (default: Corefile, else the one of /etc/coredns-safebrowsing or /etc/coredns)
files
`)
}

func TestFishCompletes(t *testing.T) {
	testkit.Long(t)
	out := inShell(t, "fish", "--no-config", "-c", `
safebrowsing completion fish | source
complete -C "safebrowsing wh"
complete -C "safebrowsing why -co"
complete -C "safebrowsing why -corefile nam"
`)
	expect(t, "fish", out, `why	print whether names are blocked, and why
-confirm	ask the service to confirm suspected names
-corefile	the COREFILE of the server (default: Corefile, else the one of /etc/coredns-safebrowsing or /etc/coredns)
names.txt
`)
}

func TestCandidates(t *testing.T) {
	for line, want := range map[string]string{
		"":                             "status why blocked allow block unblock pause resume lists setup validate doctor expressions plan import coverage update version completion",
		"e":                            "expressions",
		"__":                           "", // for the scripts only
		"-":                            "-version -help",
		"--v":                          "--version",
		"expressions ":                 "", // names
		"expressions -r":               "-rule",
		"expressions -rule ":           "",
		"expressions -rule webrisk --": "--rule --json --help",
		"why -confirm -j":              "-json", // a flag without a value
		"why -- -j":                    "",
		"chekc ":                       "",
		"pause ":                       "off",
		"pause -b":                     "-block",
		"allow -":                      "-file -remove -list -corefile -db -json -for -until -help",
		"allow shop.example ":          "",
		"help u":                       "unblock update",
		"help update ":                 "",
		"completion z":                 "zsh",
		"completion zsh ":              "",
	} {
		var got []string
		for l := range strings.Lines(run(t, append([]string{"__complete"}, strings.Split(line, " ")...)...).want(0).quiet().out) {
			word, _, _ := strings.Cut(l, "\t")
			got = append(got, word)
		}
		expect(t, line, strings.Join(got, " "), want)
	}
	run(t, "__complete").want(0).quiet().mute()
}
