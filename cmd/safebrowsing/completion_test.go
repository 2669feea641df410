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

// Without its start-up files bash is without the package bash-completion, too.
func TestShellsComplete(t *testing.T) {
	const corefile = "the COREFILE of the server (default: Corefile, else the one of /etc/coredns-safebrowsing or /etc/coredns)\n"
	for _, tc := range []struct{ shell, flags, script, want string }{
		{"bash", "--norc --noprofile -c", `
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
`, `complete -o bashdefault -o default -F _safebrowsing safebrowsing
safebrowsing wh: why
HOME/safebrowsing doc: doctor
~/safebrowsing doc: doctor
safebrowsing why -co: -confirm -corefile
safebrowsing why --co: --confirm --corefile
safebrowsing why -corefile nam: 
safebrowsing completion : bash zsh fish
`},
		{"zsh", "-f -c", `
compdef() { echo "compdef $*" }
_describe() { print -l -- "${(@P)2}" }
_files() { echo files }
source <(safebrowsing completion zsh)
words=(safebrowsing wh) CURRENT=2; _safebrowsing
words=(safebrowsing why -co a.example) CURRENT=3; _safebrowsing
words=(safebrowsing why -corefile nam) CURRENT=4; _safebrowsing
`, "compdef _safebrowsing safebrowsing\nwhy:print whether names are blocked, and why\n-confirm:ask the service to confirm suspected names\n-corefile:" + corefile + "files\n"},
		{"fish", "--no-config -c", `
safebrowsing completion fish | source
complete -C "safebrowsing wh"
complete -C "safebrowsing why -co"
complete -C "safebrowsing why -corefile nam"
`, "why\tprint whether names are blocked, and why\n-confirm\task the service to confirm suspected names\n-corefile\t" + corefile + "names.txt\n"},
	} {
		t.Run(tc.shell, func(t *testing.T) {
			if tc.shell != "zsh" {
				testkit.Long(t)
			}
			testkit.Program(t, tc.shell)
			program, err := os.Executable()
			testkit.Must(t, err)
			home := t.TempDir()
			testkit.Must(t, os.Symlink(program, filepath.Join(home, "safebrowsing")))
			write(t, filepath.Join(home, "names.txt"), "")
			c := exec.CommandContext(t.Context(), tc.shell, append(strings.Fields(tc.flags), tc.script)...)
			c.Dir, c.Env = home, []string{"PATH=" + home + ":" + os.Getenv("PATH"), "HOME=" + home, "TERM=dumb", "GOCOVERDIR=" + t.TempDir()} // with -cover
			out, err := c.CombinedOutput()
			testkit.Must(t, err)
			expect(t, tc.shell, strings.ReplaceAll(string(out), home, "HOME"), tc.want)
		})
	}
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
