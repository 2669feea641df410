// Package masktest writes API keys into wrong places of a Corefile. Only tests import it.
package masktest

import (
	"maps"
	"slices"
	"strings"
)

// Key is no key: it has the form of one.
var Key = "AIza" + strings.Repeat("Qx7-_", 7)

// Token has the form of an access token.
var Token = "ya29." + strings.Repeat("a0Bx_", 30)

// ways are mistakes with a key: WORD is a property, and KEY a key.
var ways = []string{
	"WORD KEY",
	"WORD=KEY",
	"WORD,KEY",
	"WORD ./KEY.txt",
	"WORD KEY.",
	"WORD https://lists.example.org/a?key=KEY",
	"WORD \"KEY\"",
	"WORD KEY KEY",
	"WORD SAFEBROWSING_API_KEY=KEY",
	"KEY WORD",
	"WORD <KEY>",
	"WORD KEY\nWORD KEY",
	"WORD https://KEY@lists.example.org/KEY",
}

// Stanzas returns stanzas with a secret in each of these properties, wrongly in each way, and
// outside of the properties. Few of them are accepted.
func Stanzas(properties map[string]string, secret string) (all []string) {
	for _, word := range slices.Sorted(maps.Keys(properties)) {
		for _, way := range ways {
			all = append(all, "safebrowsing {\n"+strings.NewReplacer("WORD", word, "KEY", secret).Replace(way)+"\n}")
		}
	}
	for _, way := range []string{"safebrowsing KEY", "safebrowsing KEY. {\ntest x.example\n}", "safebrowsing {\nKEY\n}", "safebrowsing {\ntest x.example\n} KEY", "safebrowsing {\nKEY {\n}\n}"} {
		all = append(all, strings.ReplaceAll(way, "KEY", secret))
	}
	return all
}

// In reports whether a text has a secret, in any case, or more than half of it.
func In(text, secret string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(secret[:len(secret)*3/5]))
}
