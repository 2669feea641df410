package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// systemd.exec(5), LoadCredential=: each credential is a file in $CREDENTIALS_DIRECTORY.
func TestKeyComesFromACredentialToo(t *testing.T) {
	const own = "safebrowsing {\nblock ../../testdata/blocklist.txt\n}"
	for _, tc := range []struct {
		name, stanza, credential, variable string
		key, apiKey                        string // key: in force; apiKey: not in a file that is watched
		fromFile                           bool
		note                               string
	}{
		{"a credential alone", "safebrowsing", "FROMCRED\n", "", "FROMCRED", "", true, ""},
		{"a credential goes before the environment", "safebrowsing", "FROMCRED", "FROMENV", "FROMCRED", "", true, ""},
		{"the Corefile goes before a credential", "safebrowsing {\napi_key MINE\n}", "FROMCRED", "FROMENV", "MINE", "MINE", false, ""},
		{"no credential", "safebrowsing", "none", "FROMENV", "FROMENV", "FROMENV", false, ""},
		{"an empty credential is none", "safebrowsing", "\n", "FROMENV", "FROMENV", "FROMENV", false, ""},
		{"an empty credential starts with own lists", own, "\n", "", "", "", false, "put the key into the file of the credential safebrowsing.key and restart the service"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, Credential)
			if tc.credential != "none" {
				writeFile(t, dir, Credential, tc.credential)
			}
			t.Setenv("CREDENTIALS_DIRECTORY", dir)
			t.Setenv(KeyVariable, tc.variable)
			c, err := stanza(t, tc.stanza)
			if err != nil {
				t.Fatal(err)
			}
			if c.Secret != tc.key || c.APIKey != tc.apiKey || c.Online != (tc.key != "") {
				t.Errorf("Expected the key %q and APIKey %q, got %q and %q, online %v", tc.key, tc.apiKey, c.Secret, c.APIKey, c.Online)
			}
			if got := c.KeyFile == file; got != tc.fromFile {
				t.Errorf("The file of the key is %q, expected it to be the credential: %v", c.KeyFile, tc.fromFile)
			}
			if notes := strings.Join(c.Notes, "\n"); !strings.Contains(notes, tc.note) {
				t.Errorf("Expected a note with %q, got %q", tc.note, notes)
			}
		})
	}
}

// A key that is there but cannot be read must not be taken for no key.
func TestACredentialThatCannotBeReadIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, Credential), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	t.Setenv(KeyVariable, "FROMENV")
	if _, err := stanza(t, "safebrowsing"); err == nil || !strings.Contains(err.Error(), "Testfile:1") || !strings.Contains(err.Error(), "$CREDENTIALS_DIRECTORY") {
		t.Errorf("Expected an error with the place and the directory, got %v", err)
	}
}

// A pause is written into db, which therefore has an effect without a key, too.
func TestDBOfOwnListsIsWhereAPauseIsWritten(t *testing.T) {
	t.Setenv(KeyVariable, "")
	db := t.TempDir()
	c, err := stanza(t, "safebrowsing {\nblock ../../testdata/blocklist.txt\ndb "+db+"\n}")
	if err != nil || len(c.Warnings) > 0 || c.PauseFolder() != db {
		t.Errorf("Got the error %v, the warnings %q and the folder %s", err, c.Warnings, c.PauseFolder())
	}
}
