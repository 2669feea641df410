package test

import (
	"strings"
	"testing"

	"github.com/coredns/caddy"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// Server blocks that import the same lines log them once at a start, parse never
// does, and the command line sees them too.
func TestWarningsOfTheCorefileAreLoggedOnceAtTheStart(t *testing.T) {
	corefileFolder(t)
	lines := testkit.Capture(t)
	corefile := "(ours) {\nsafebrowsing {\n" + blockList(t, "blocked.example") + "\nallow old.example.org until 2020-01-01\nallow new.example.org until 2097-01-01\n}\nwhoami\n}\n" +
		".:0 {\nbind 127.0.0.1\nimport ours\n}\nexample.org:0 {\nbind 127.0.0.1\nimport ours\n}\n"
	testkit.Must(t, caddy.ValidateAndExecuteDirectives(input(corefile), nil, true))
	if got := lines.About("Corefile:"); len(got) > 0 {
		t.Errorf("Expected that to read a Corefile logs nothing, got %q", got)
	}
	w := &world{t: t}
	w.start(corefile)
	if got := lines.About("Corefile:"); len(got) != 2 || !strings.Contains(got[0], "[WARNING]") || !strings.Contains(got[1], "[INFO]") {
		t.Errorf("Expected one warning and one note, got %q", got)
	}
	err := w.reload(corefile)
	if got := lines.About("[WARNING] plugin/safebrowsing: Corefile:4: allow old.example.org"); err != nil || len(got) != 2 {
		t.Errorf("Expected the warning again after a reload, got %q, %v", got, err)
	}
}

// Server blocks that all are without a key say so once.
func TestSafeBrowsingIsSaidToBeOffOnce(t *testing.T) {
	t.Setenv(config.KeyVariable, "")
	lines := testkit.Capture(t)
	w := &world{t: t}
	w.start(".:0 {\nbind 127.0.0.1\nsafebrowsing {\n" + blockList(t, "x.example") + "\n}\nwhoami\n}\n" +
		"example.org:0 {\nbind 127.0.0.1\nsafebrowsing {\n" + blockList(t, "x.example") + "\n}\nwhoami\n}\n")
	w.stop()
	lines.Only(t, "Safe Browsing is off")
}

// stanza parses properties as they stand between the braces.
func stanza(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	c := caddy.NewTestController("dns", text)
	c.ServerBlockKeys = []string{"."}
	cfg, err := config.Parse(c, "")
	if err != nil {
		return cfg, err
	}
	b := block.New(cfg)
	err = b.Validate()
	return b.Config, err
}

// Whatever a stanza says it is read or refused, with its place, without the key.
func FuzzStanza(f *testing.F) {
	for _, tc := range wrongCorefiles {
		f.Add(tc.text)
	}
	for _, tc := range doubtfulCorefiles {
		f.Add(tc.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "api_key_file") || strings.Contains(text, "SECRET") {
			return // files of the machine
		}
		t.Setenv(config.KeyVariable, "SECRET")
		c, err := stanza(t, "safebrowsing {\ndb off\n"+text+"\n}")
		switch {
		case err == nil && (len(c.Zones) == 0 || c.Secret == ""):
			t.Errorf("%q: Got %+v", text, c)
		case err != nil && (!strings.HasPrefix(err.Error(), "Testfile:") || strings.Contains(err.Error(), "SECRET")):
			t.Errorf("%q: Got %v", text, err)
		}
	})
}
