package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary run as the command if it is started by that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "safebrowsing" {
		main()
	}
	os.Setenv("SAFEBROWSING_BOOT_ID", "") // the time of a bubble is not that since boot
	os.Exit(m.Run())
}

// inShell runs a script with the command in its path and without the user's settings.
func inShell(t *testing.T, shell string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil && os.Getenv("CI") != "" {
		t.Fatalf("This test needs %s: %v", shell, err)
	} else if err != nil {
		t.Skipf("This test needs %s: install the package of that name", shell)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.Symlink(program, filepath.Join(home, "safebrowsing")); err != nil {
		t.Fatal(err)
	}
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
	out := inShell(t, "bash", "--norc", "--noprofile", "-c", `
source <(safebrowsing completion bash)
complete -p safebrowsing
words() { COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _safebrowsing; echo "$*: ${COMPREPLY[*]}"; }
words safebrowsing che
words ~/safebrowsing doc
words '~/safebrowsing' doc
words safebrowsing check -co
words safebrowsing check --co
words safebrowsing check -corefile nam
words safebrowsing completion ''
`)
	home, _, _ := strings.Cut(out[strings.Index(out, "/"):], "/safebrowsing")
	expect(t, "bash", strings.ReplaceAll(out, home, "HOME"), `complete -o bashdefault -o default -F _safebrowsing safebrowsing
safebrowsing che: check
HOME/safebrowsing doc: doctor
~/safebrowsing doc: doctor
safebrowsing check -co: -corefile -confirm
safebrowsing check --co: --corefile --confirm
safebrowsing check -corefile nam: 
safebrowsing completion : bash zsh fish
`)
}

func TestZshCompletes(t *testing.T) {
	out := inShell(t, "zsh", "-f", "-c", `
compdef() { echo "compdef $*" }
_describe() { print -l -- "${(@P)2}" }
_files() { echo files }
source <(safebrowsing completion zsh)
words=(safebrowsing che) CURRENT=2; _safebrowsing
words=(safebrowsing check -co a.example) CURRENT=3; _safebrowsing
words=(safebrowsing check -corefile nam) CURRENT=4; _safebrowsing
`)
	expect(t, "zsh", out, `compdef _safebrowsing safebrowsing
check:print whether names would be blocked, and why
-corefile:decide as the CoreDNS of this FILE
-confirm:ask the server to confirm suspected names
files
`)
}

func TestFishCompletes(t *testing.T) {
	out := inShell(t, "fish", "--no-config", "-c", `
safebrowsing completion fish | source
complete -C "safebrowsing che"
complete -C "safebrowsing check -co"
complete -C "safebrowsing check -corefile nam"
`)
	expect(t, "fish", out, `check	print whether names would be blocked, and why
-confirm	ask the server to confirm suspected names
-corefile	decide as the CoreDNS of this FILE
names.txt
`)
}

func TestCandidates(t *testing.T) {
	for line, want := range map[string]string{
		"":                             "check allow block pause expressions lists update status doctor version completion",
		"e":                            "expressions",
		"__":                           "", // for the scripts only
		"-":                            "-version -help",
		"--v":                          "--version",
		"expressions ":                 "", // names
		"expressions -r":               "-rule",
		"expressions -rule ":           "",
		"expressions -rule webrisk --": "--rule --json --help",
		"check -confirm -j":            "-json", // a flag without a value
		"check -- -j":                  "",
		"chekc ":                       "",
		"pause ":                       "off",
		"pause -b":                     "-block",
		"allow -":                      "-file -corefile -remove -list -json -for -until -help",
		"allow shop.example ":          "",
		"help u":                       "update",
		"help update ":                 "",
		"completion z":                 "zsh",
		"completion zsh ":              "",
	} {
		status, out, errOut := invoke(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		var got []string
		for l := range strings.Lines(out) {
			word, _, _ := strings.Cut(l, "\t")
			got = append(got, word)
		}
		if status != 0 || errOut != "" || strings.Join(got, " ") != want {
			t.Errorf("%q: status %d, %q, %s, want %q", line, status, got, errOut, want)
		}
	}
	if status, out, errOut := invoke(t, "__complete"); status != 0 || out+errOut != "" {
		t.Errorf("no words: status %d, %s%s", status, out, errOut)
	}
}
