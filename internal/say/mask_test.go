package say

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The secrets of this test. None of them is one: they are made here.
var (
	aKey   = "AIza" + strings.Repeat("aB3-_", 7)
	aToken = "ya29." + strings.Repeat("a0Bc_", 30)
)

func TestWhatLooksLikeASecretIsMasked(t *testing.T) {
	pem := "-----BEGIN PRIVATE " + "KEY-----\nMIIE\n-----END PRIVATE " + "KEY-----\n"
	for _, tc := range []struct{ text, want string }{
		{`unknown property "` + aKey + `"`, `unknown property "(the key)"`},
		{"open /x/" + aKey + ": no such file", "open /x/(the key): no such file"},
		{"SAFEBROWSING_API_KEY=" + aKey + "," + aKey, "SAFEBROWSING_API_KEY=(the key),(the key)"},
		{"https://h/?key=" + aKey + "&a=b", "https://h/?key=(the key)&a=b"},
		{"zone " + strings.ToLower(aKey) + ".", "zone (the key)."},
		{"cut off: " + aKey[:20], "cut off: (the key)"},
		{"open " + aToken + ": no", "open (the token): no"},
		{`{"private_key_id": "abc", "private_key": "` + strings.ReplaceAll(pem, "\n", `\n`) + `", "a": 1}`, `{"private_key_id": (the secret), "private_key": (the secret), "a": 1}`},
		{"x" + pem + "y", "x(the secret)\ny"},
		{"GOCSPX-" + strings.Repeat("aB", 10) + " and 1//" + strings.Repeat("0aB", 10), "(the secret) and (the token)"},
	} {
		if got := Masked(tc.text); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.text, got, tc.want)
		}
		if !HasSecret(tc.text) {
			t.Errorf("%q: nothing was found", tc.text)
		}
	}
}

// Names of hosts are what this program is about: they stay readable.
func TestHostsAndUsualTextStayAsTheyAre(t *testing.T) {
	for _, text := range []string{
		"", "AIza", "aizawa-dental-clinic.example", "ya29.example.com", "1//2", "www.example.org is blocked (MALWARE, list mw-4b)",
		"https://lists.example.org/aizawa/new.txt", "-----BEGIN CERTIFICATE-----\nMIIE",
	} {
		if got := Masked(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestAMaskedErrorIsStillTheErrorItWas(t *testing.T) {
	err := MaskedError(fmt.Errorf("open %s: %w", aKey, fs.ErrNotExist))
	if strings.Contains(err.Error(), aKey) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if plain := errors.New("plain"); MaskedError(plain) != plain || MaskedError(nil) != nil {
		t.Error("an error without a secret changed")
	}
}

func TestEachLevelOfTheLogAndEachWriteIsMasked(t *testing.T) {
	lines := testkit.Capture(t)
	l := NewLog()
	l.Info(aKey)
	l.Infof("%s", aKey)
	l.Warning(aKey)
	l.Warningf("%s", aKey)
	l.Errorf("%s", aKey)
	l.JSON(map[string]string{"a": aKey})
	if got := lines.About("(the key)"); len(got) != 6 || !strings.HasPrefix(got[5], "{") || len(lines.About(aKey)) != 0 {
		t.Errorf("got %q", lines.About(""))
	}
	var b strings.Builder
	if n, err := fmt.Fprintf(MaskedWriter{&b}, "a %s b", aKey); n != len(aKey)+4 || err != nil || b.String() != "a (the key) b" {
		t.Errorf("wrote %q, %d, %v", b.String(), n, err)
	}
}

func TestALineWithoutASecretCostsNoAllocation(t *testing.T) {
	line := strings.Repeat("www.example.org is blocked ", 5)
	if n := testing.AllocsPerRun(100, func() { Masked(line) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
