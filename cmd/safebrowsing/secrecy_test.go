package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// SECURITY.md: the key is in no error. People run these commands when something is wrong, and
// post what they print.
func TestNoCommandPrintsAKeyFromAWrongPlaceOfTheCorefile(t *testing.T) {
	testkit.Long(t)
	w := newWorld(t)
	lines := testkit.Capture(t)
	db := filepath.Join(t.TempDir(), "db")
	t.Setenv("STATE_DIRECTORY", db)
	path := filepath.Join(t.TempDir(), "Corefile")
	for _, secret := range []string{testkit.Key, testkit.Token} {
		for i, stanza := range testkit.Stanzas(config.Usages(), secret) {
			write(t, path, ".:5353 {\n"+stanza+"\n}\n")
			commands := [][]string{{"doctor", "-offline", "-corefile", path}, {"status", "-corefile", path}, {"why", "-corefile", path, "www.example.org"}, {"allow", "-corefile", path, "www.example.org"}}
			if i%7 != 0 {
				commands = commands[:1] // it is refused, and all of them say the same: some are enough
			}
			for _, command := range commands {
				if _, out, errOut := invoke(t, command...); testkit.Leaks(out+errOut, secret) {
					t.Errorf("%q: %s prints %s%s", stanza, command[0], out, errOut)
				}
			}
		}
		for _, args := range [][]string{
			{"why", secret}, {"doctor", "-corefile", secret}, {"-" + secret}, {secret}, {"update", "-db", secret + "/x", "-endpoint", "KEY" + secret},
			{"doctor", "-offline", "-endpoint", w.endpoint + "/?key=" + secret}, {"doctor", "-offline", "-endpoint", w.endpoint, "-api-key-file", secret},
		} {
			if _, out, errOut := invoke(t, args...); testkit.Leaks(out+errOut, secret) {
				t.Errorf("%q prints %s%s", args, out, errOut)
			}
		}
		if got := lines.About(secret); len(got) > 0 {
			t.Errorf("the log has %q", got)
		}
	}
}

func TestDoctorWarnsOfAKeyThatOthersMayRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its modes say nothing about others")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // others may not enter the folder of a test
		t.Fatal(err)
	}
	for above := dir; above != filepath.Dir(above); above = filepath.Dir(above) {
		if info, err := os.Stat(above); err != nil || info.Mode()&0o001 == 0 {
			testkit.Need(t, errors.New("others may not enter "+above))
		}
	}
	w := newWorld(t)
	key, corefile := filepath.Join(dir, "key"), filepath.Join(dir, "Corefile")
	write(t, key, "SECRET\n")
	for _, tc := range []struct {
		property        string
		key, corefile   os.FileMode
		want, wantCured string
	}{
		{"api_key_file " + key, 0o600, 0o644, "", ""},
		{"api_key_file " + key, 0o640, 0o644, "", ""},
		{"api_key_file " + key, 0o644, 0o600, "may read the API key in " + key, "chmod o= " + key},
		{"api_key SECRET", 0o600, 0o600, "", ""},
		{"api_key SECRET", 0o600, 0o604, "may read " + corefile + ", which holds the API key", "api_key_file"},
	} {
		write(t, corefile, ". {\n safebrowsing {\n  "+tc.property+"\n  endpoint "+w.endpoint+"\n  db off\n }\n}\n")
		for path, mode := range map[string]os.FileMode{key: tc.key, corefile: tc.corefile} {
			testkit.Must(t, os.Chmod(path, mode))
		}
		_, found, _ := examine(t, corefile, "-offline")
		d := found["key file"]
		if (d.Status == isWarning) != (tc.want != "") || !strings.Contains(string(d.Text), tc.want) || !strings.Contains(string(d.Advice), tc.wantCured) {
			t.Errorf("%s with the modes %o and %o: %+v", tc.property, tc.key, tc.corefile, d)
		}
	}
	testkit.Must(t, os.Chmod(corefile, 0o644))
	testkit.Must(t, os.Chmod(dir, 0o700))
	if _, found, _ := examine(t, corefile, "-offline"); found["key file"].Status != "" {
		t.Errorf("nobody else may enter the folder: %+v", found["key file"])
	}
}
