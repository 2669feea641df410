package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/pkg/durations"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// place is a line of a Corefile.
type place struct {
	file string
	line int
}

func (p *parser) here() place { return place{p.File(), p.Line()} }

func (at place) String() string { return fmt.Sprintf("%s:%d", at.file, at.line) }

// errorf returns an error in the form of caddy.Controller.Errf. It may be about
// another line than the one that was read last.
func (at place) errorf(format string, args ...any) error {
	return fmt.Errorf("%s - Error during parsing: "+format, append([]any{at}, args...)...)
}

// warn notes a warning, to be logged at the start.
func (at place) warn(p *parser, format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf("%s: "+format, append([]any{at}, args...)...))
}

// note notes what is as the Corefile says, to be logged at the start.
func (p *parser) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf("%s: "+format, append([]any{p.here()}, args...)...))
}

// at returns where the stanza has a word, "key" being whichever names the key, or where it begins.
func (c *Config) at(word string) place {
	words := []string{word}
	if word == "key" {
		words = keyWords
	}
	for _, word := range words {
		if at, ok := c.given[word]; ok {
			return at
		}
	}
	return c.begin
}

// Given reports whether the stanza has a word.
func (c *Config) Given(word string) bool { _, ok := c.given[word]; return ok }

// Refuse returns an error about a word, with its place.
func (c *Config) Refuse(word string, err error) error {
	if c.flags {
		return say.MaskedError(err)
	}
	at := c.at(word)
	return say.MaskedError(at.errorf("%w%s", err, unlessPlugin(word, at.line)))
}

// Warn notes a warning about a word, with its place.
func (c *Config) Warn(word, text string) {
	if !c.flags {
		text = c.at(word).String() + ": " + text
	}
	c.Warnings = append(c.Warnings, say.Masked(text))
}

// examples are arguments of properties whose usage does not show their form.
var examples = map[string]string{
	"ttl":             "60s or 5m",
	"confirm_timeout": "500ms or 1s",
	"max_entries":     "500000",
	"cache":           "100000",
	"status":          "127.0.0.1:8053",
	"allow":           "good.example.org until 2027-01-31",
}

// wrongArguments says what a property takes.
func wrongArguments(word string) string {
	usage := properties[word].usage
	if usage == "" {
		return word + " takes no argument"
	}
	text := "wrong arguments, usage: " + word + " " + usage
	if example, ok := examples[word]; ok {
		text += ", such as " + example
	}
	return text
}

// synonyms are the words that other programs have for our properties.
var synonyms = map[string]string{
	"whitelist": "allow", "allowlist": "allow", "permit": "allow",
	"blacklist": "block", "blocklist": "block", "denylist": "block", "deny": "block",
	"apikey": "api_key", "key": "api_key", "apikey_file": "api_key_file", "key_file": "api_key_file", "keyfile": "api_key_file",
	"server": "endpoint", "url": "endpoint", "upstream": "resolver", "timeout": "confirm_timeout",
	"directory": "db", "dir": "db", "folder": "db", "path": "db", "database": "db",
	"ignore": "except", "exclude": "except", "response": "respond", "action": "respond", "dry_run": "monitor",
}

// removed are the properties of earlier versions, and what to write in their place.
var removed = map[string]string{
	"endpoint_ca":   "write tls CA, or with endpoint_cert, too, tls CERT KEY CA",
	"endpoint_cert": "write tls CERT KEY, or with endpoint_ca, too, tls CERT KEY CA",
	"frames":        "remove the line: threats that are marked FRAME_ONLY block, and allow HOST lets one name pass",
	"test":          "write block FILE, and on lines of FILE the name, and *. before it for the names below",
	"prefixes":      "remove the line: the server gets 4 bytes of a hash, as it did with prefixes short",
}

// meant returns the property that the operator probably meant by a word, or "".
func meant(word string) string {
	if alias, ok := synonyms[strings.ToLower(word)]; ok {
		return alias
	}
	near, edits := say.Nearest(word, slices.Sorted(maps.Keys(properties)))
	if edits <= 2 && 3*edits <= len(word) {
		return near
	}
	return ""
}

// unknownProperty returns the error about a word that is not a property.
func unknownProperty(word string, line int) error {
	if slices.Contains(dnsserver.Directives, word) {
		return fmt.Errorf("%s is a plugin and not a property of %s: a } is missing before line %d", word, say.Plugin, line)
	}
	switch {
	case say.HasSecret(word) && strings.ContainsAny(word, "=,:"):
		return fmt.Errorf("unknown property %q: write api_key, a space, and the key alone", word)
	case say.HasSecret(word):
		return fmt.Errorf("unknown property %q: write api_key before it", word)
	}
	if instead, ok := removed[word]; ok {
		return fmt.Errorf("%s is no longer a property: %s", word, instead)
	}
	if near := meant(word); near != "" {
		return fmt.Errorf("unknown property %q: did you mean %s?", word, near)
	}
	return fmt.Errorf("unknown property %q: docs/corefile.md and \"man coredns-safebrowsing\" list the properties", word)
}

// hasComma reports whether an argument has a comma where a space should be. Inside a
// path a comma may be part of a name, and the query of a URL may have several URLs.
func hasComma(arg string) bool {
	before, _, _ := strings.Cut(arg, "?")
	return strings.HasSuffix(arg, ",") || strings.HasPrefix(arg, ",") || strings.Contains(arg, ",") && !strings.Contains(arg, "/") ||
		strings.Contains(before, ",https://") || strings.Contains(before, ",http://")
}

// unlessPlugin returns a hint if a word is a plugin too, else "".
func unlessPlugin(word string, line int) string {
	if !slices.Contains(dnsserver.Directives, word) {
		return ""
	}
	return fmt.Sprintf("; if the plugin %s is meant, a } is missing before line %d", word, line)
}

// secondStanza returns the error about what follows the stanza.
func (p *parser) secondStanza() error {
	if p.Val() == "{" {
		return p.Errf("the { must be at the end of the line that begins with %s", say.Plugin)
	}
	return p.Errf("%s is given more than once in this server block: put all its properties into one", say.Plugin)
}

// hasSecret reports whether an argument of a property looks like a key or a token in a wrong
// place. It would be sent, logged, or become the name of a file. The query of a list by URL
// may hold one.
func hasSecret(word string, args []string) bool {
	return word != "api_key" && slices.ContainsFunc(args, func(arg string) bool {
		if isURL(arg) && (word == "block" || word == "allow") {
			arg, _, _ = strings.Cut(arg, "?")
		}
		return say.HasSecret(arg)
	})
}

// choice returns the index of a value in words.
func choice(value string, words ...string) (int, error) {
	if i := slices.Index(words, value); i >= 0 {
		return i, nil
	}
	text := fmt.Sprintf("%q is not one of %s", value, strings.Join(words, ", "))
	if len(words) == 1 {
		text = fmt.Sprintf("%q is not %s", value, words[0])
	}
	if near, edits := say.Nearest(value, words); edits <= 2 && 3*edits <= len(value) {
		text += ": did you mean " + near + "?"
	}
	return 0, errors.New(text)
}

// duration reads a duration from shortest to longest.
func duration(text string, shortest, longest time.Duration) (time.Duration, error) {
	d, err := durations.NewDurationFromArg(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as %s", text, short(min(longest, 12*time.Hour)))
	}
	unit := ""
	if _, err := strconv.Atoi(text); err == nil {
		unit = " (a number without a unit is seconds)"
	}
	switch {
	case d < shortest:
		return 0, fmt.Errorf("%q is less than %s%s", text, short(shortest), unit)
	case d > longest:
		return 0, fmt.Errorf("%q is more than %s, the longest that is allowed%s", text, short(longest), unit)
	}
	return d, nil
}

// short returns a duration as people write it: 30m, not 30m0s, and 12h, not 12h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// number reads a whole number from lowest to highest.
func number(text string, lowest, highest int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < lowest || n > highest {
		return 0, errors.New(strconv.Quote(text) + " is not a number from " + strconv.Itoa(lowest) + " to " + strconv.Itoa(highest))
	}
	return n, nil
}
