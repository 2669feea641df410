package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// People write keys into wrong places, and what refuses them reaches journals and bug reports.
func TestAKeyInAnyPlaceOfAStanzaIsInNoText(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	t.Setenv(KeyVariable, "")
	for _, secret := range []string{testkit.Key, testkit.Token} {
		for _, text := range testkit.Stanzas(Usages(), secret) {
			c, err := stanza(t, text)
			if said := fmt.Sprint(err, c.Warnings, c.Notes, c.DB, c.Zones, c.Except, c.Endpoint, c.Status, c.Structured, c.Lists); testkit.Leaks(said, secret) {
				t.Errorf("%q: %s", text, said)
			}
			for _, own := range c.Own {
				if testkit.Leaks(own.Name(), secret) {
					t.Errorf("%q: a list is called %s", text, own.Name())
				}
			}
			if len(c.Hosts) > 0 {
				t.Errorf("%q: a key became a host", text)
			}
		}
	}
}

func TestWhatCannotBeAKeyIsRefusedWithWhatToWrite(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	for key, want := range map[string]string{
		"/etc/coredns/safebrowsing.key":           "is a path and not a key: did you mean api_key_file?",
		"/run/secrets/safebrowsing":               "did you mean api_key_file?",
		"./key":                                   "did you mean api_key_file?",
		"safebrowsing.key":                        "did you mean api_key_file?",
		"KEY":                                     "a placeholder",
		"YOUR-API-KEY":                            "a placeholder",
		"<YOUR_API_KEY>":                          "a placeholder",
		"12-ab.apps.googleusercontent.com":        "the ID of an OAuth client",
		"SAFEBROWSING_API_KEY=" + testkit.Key:     "an assignment and not a key: write only what follows the =",
		"'" + testkit.Key + "'":                   "in quotes",
		"https://console.cloud.google.com/x":      "a URL",
		"$SAFEBROWSING_API_KEY":                   "write {$NAME}",
		`{"type":"service_account","id":"12345"}`: "JSON, as of a service account",
	} {
		quoted := `"` + strings.ReplaceAll(key, `"`, `\"`) + `"`
		_, err := stanza(t, "safebrowsing {\napi_key "+quoted+"\n}")
		if err == nil || !strings.HasPrefix(err.Error(), "Testfile:2 - ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), key) {
			t.Errorf("%s: got %v, want %q", key, err, want)
		}
		file := writeFile(t, t.TempDir(), "f", key+"\n")
		if _, err := say.ReadKey(file); err == nil || !strings.Contains(err.Error(), file+" holds ") || strings.Contains(err.Error(), key) {
			t.Errorf("%s in a file: got %v", key, err)
		}
		t.Setenv(KeyVariable, key)
		if _, _, err := KeyOfProcess(); err == nil || !strings.Contains(err.Error(), "$"+KeyVariable+" holds ") || len(key) > 25 && strings.Contains(err.Error(), key) {
			t.Errorf("%s in the environment: got %v", key, err)
		}
		t.Setenv(KeyVariable, "")
	}
}

func TestAServerOfOnesOwnMayHaveKeysOfAnyForm(t *testing.T) {
	for _, key := range []string{"K", "SECRET", "hunter2", "a.b-c_d", "/3aB+x9/Zk3mQ2r8yT1uWw==", "a=", "Zm9vYmFy==", "token:abc"} {
		c, err := stanza(t, "safebrowsing {\ndb off\nendpoint https://relay.example.org\napi_key "+key+"\n}")
		if err != nil || len(c.Warnings) > 0 {
			t.Errorf("%s: %v, %q", key, err, c.Warnings)
		}
	}
}

func TestAKeyThatGoogleWillRefuseIsAWarning(t *testing.T) {
	const warning = "does not look like one of Google"
	for key, want := range map[string]bool{testkit.Key: false, testkit.Key[1:]: true, testkit.Key + "x": true, "hunter2": true} {
		c, err := stanza(t, "safebrowsing {\ndb off\napi_key "+key+"\n}")
		if got := strings.Contains(strings.Join(c.Warnings, "\n"), "Testfile:3: the API key "+warning); err != nil || got != want {
			t.Errorf("%s: %v, %q", key, err, c.Warnings)
		}
	}
}
