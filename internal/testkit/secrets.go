package testkit

import (
	"maps"
	"slices"
	"strings"
)

// Key is no key: it has the form of one.
var Key = "AIza" + strings.Repeat("Qx7-_", 7)

// Token has the form of an access token.
var Token = "ya29." + strings.Repeat("a0Bx_", 30)

// ways are mistakes with a key: @W is a property, and @K a key.
var ways = []string{
	"@W @K",
	"@W=@K",
	"@W,@K",
	"@W ./@K.txt",
	"@W @K.",
	"@W https://lists.example.org/a?key=@K",
	"@W \"@K\"",
	"@W @K @K",
	"@W SAFEBROWSING_API_KEY=@K",
	"@K @W",
	"@W <@K>",
	"@W @K\n@W @K",
	"@W https://@K@lists.example.org/@K",
}

// Stanzas returns stanzas with a secret in each of these properties, wrongly in each way, and
// outside of the properties. Few of them are accepted.
func Stanzas(properties map[string]string, secret string) (all []string) {
	for _, word := range slices.Sorted(maps.Keys(properties)) {
		for _, way := range ways {
			all = append(all, "safebrowsing {\n"+strings.NewReplacer("@W", word, "@K", secret).Replace(way)+"\n}")
		}
	}
	for _, way := range []string{"safebrowsing @K", "safebrowsing @K. {\nexplain\n}", "safebrowsing {\n@K\n}", "safebrowsing {\nexplain\n} @K", "safebrowsing {\n@K {\n}\n}"} {
		all = append(all, strings.ReplaceAll(way, "@K", secret))
	}
	return all
}

// Leaks reports whether a text has a secret, in any case, or more than half of it.
func Leaks(text, secret string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(secret[:len(secret)*3/5]))
}
