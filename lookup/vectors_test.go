package lookup

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// vectors calls run with the fields of every line of a file of test vectors.
func vectors(t *testing.T, file string, fields int, run func(t *testing.T, f []string)) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", "lookup", file))
	testkit.Must(t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, " | ")
		if len(f) != fields {
			t.Fatalf("%s: %d fields in %q, want %d", file, len(f), line, fields)
		}
		for i := range f {
			if strings.HasPrefix(f[i], `"`) {
				f[i], err = strconv.Unquote(f[i])
				testkit.Must(t, err)
			}
		}
		t.Run(fmt.Sprintf("%q", f[0]), func(t *testing.T) { run(t, f) })
		n++
	}
	testkit.Between(t, "vectors in "+file, n, 1, math.MaxInt)
}

func TestHostsAreParsedAsTheVectorsSay(t *testing.T) {
	for _, file := range []string{"canonical-hosts.txt", "ipv6.txt"} {
		vectors(t, file, 2, func(t *testing.T, f []string) {
			h, ok := ParseHost(f[0])
			if f[1] == "-" {
				testkit.Equal(t, "ParseHost of what is no host", []any{h, ok}, []any{Host{}, false})
				return
			}
			testkit.Equal(t, "ParseHost", []any{h.String(), ok}, []any{f[1], true})
		})
	}
}

func TestSpellingsOfIPv4AddressesAreOneHost(t *testing.T) {
	vectors(t, "ipv4.txt", 3, func(t *testing.T, f []string) {
		parsed, ok := ParseHost(f[0])
		testkit.Equal(t, "ParseHost, and whether it is an address", []any{parsed.String(), parsed.ip(), ok}, []any{f[1], f[2] == "ip", true})
		testkit.Equal(t, "FromQname, as ParseHost", FromQname(f[0]), parsed)
		if f[2] == "ip" {
			testkit.Equal(t, "Expressions", parsed.Expressions(), []string{f[1] + "/"})
		}
	})
}

func TestQnamesBecomeTheHostsOfTheVectors(t *testing.T) {
	vectors(t, "qnames.txt", 3, func(t *testing.T, f []string) {
		h := FromQname(f[0])
		testkit.Equal(t, "host", h.String(), f[1])
		got := "exact"
		switch {
		case h.name == "":
			got = "none"
		case h.truncated():
			got = "parents"
		}
		testkit.Equal(t, "host stands for", got, f[2])
	})
}

func TestExpressionsAreThoseOfTheVectors(t *testing.T) {
	for file, rule := range map[string]Rule{"host-expressions.txt": RuleV5, "host-expressions-v4.txt": RuleV4} {
		vectors(t, file, 2, func(t *testing.T, f []string) {
			h, ok := ParseHost(f[0])
			want := strings.Fields(strings.ReplaceAll(f[1]+" ", " ", "/ "))
			testkit.Equal(t, "Expressions", []any{h.ExpressionsBy(rule), ok}, []any{want, true})
			if rule == RuleV5 {
				testkit.Equal(t, "Expressions without a rule", h.Expressions(), want)
			}
		})
	}
}

func TestHashesAreThoseOfTheVectors(t *testing.T) {
	vectors(t, "hashes.txt", 3, func(t *testing.T, f []string) {
		hash := HashExpression(f[0])
		testkit.Equal(t, "hash", fmt.Sprintf("%x", hash), f[2])
		testkit.Equal(t, "prefix", fmt.Sprintf("%x", hash.Prefix(4)), f[1])
	})
	vectors(t, "sha256.txt", 3, func(t *testing.T, f []string) { // as published
		times, err := strconv.Atoi(f[1])
		testkit.Must(t, err)
		testkit.WantStart(t, fmt.Sprintf("%x", HashExpression(strings.Repeat(f[0], times))), f[2])
	})
}

// specialUse is https://www.iana.org/assignments/special-use-domain-names/special-use-domain.csv of 2026-05-22, with \n for \r\n.
//
//go:embed testdata/special-use-domain.csv
var specialUse string

// specialUseSum is the SHA-256 of that file as IANA serves it. A newer version has another one: take both together.
const specialUseSum = "74cee5aa529088b7540252e30ba4775f83202ccb3323a590789ce9dc9a53a3cd"

func TestNoNameOfTheRegistryOfSpecialUseNamesIsPublic(t *testing.T) {
	lines := strings.Fields(strings.ReplaceAll(specialUse, " (DEPRECATED)", ""))
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.ReplaceAll(specialUse, "\n", "\r\n")))); sum != specialUseSum || len(lines) != 43 {
		t.Fatalf("the registry has %d lines and the sum %s", len(lines), sum)
	}
	for _, line := range lines[1:] {
		zone, reference, _ := strings.Cut(line, ",")
		resolved := strings.HasPrefix(zone, "example.") // as other names are (RFC 6761 section 6.5)
		for _, name := range []string{"a." + zone, "www.a." + zone} {
			testkit.Equal(t, name+", "+reference, FromQname(name).Public(), resolved)
		}
	}
}
