package say

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// standIns are the words that documents have where a key belongs, without -, _ and case.
var standIns = []string{"key", "apikey", "yourkey", "yourapikey", "mykey", "myapikey", "thekey", "googleapikey", "safebrowsingapikey", "xxx"}

// assignment is NAME=VALUE. The = at the end of base64 is none.
var assignment = regexp.MustCompile(`^(?:export\s+)?[A-Za-z_][A-Za-z0-9_]*\s*=\s*[^=\s]`)

// notAKey says what a text is that cannot be a key or a token, and what to write, or returns
// "". A server of one's own may have keys of any other form.
func notAKey(text string) (what, cure string) {
	has := func(chars string) bool { return strings.ContainsAny(text, chars) }
	word := strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(text))
	switch {
	case strings.HasPrefix(text, "{") && has(":"):
		return "JSON, as of a service account or an OAuth client", "write an API key, which has 39 letters and begins with AIza"
	case assignment.MatchString(text):
		return "an assignment", "write only what follows the ="
	case has(`"'` + "`„“”‘’"):
		return "a text in quotes", "write the key without them"
	case has("<>"), slices.Contains(standIns, word):
		return "a placeholder", "write a key in its place: https://console.cloud.google.com/apis/credentials"
	case strings.HasPrefix(text, "$"), strings.HasPrefix(text, "%") && strings.HasSuffix(text, "%"):
		return "the name of a variable", "in a Corefile write {$NAME}"
	case strings.HasSuffix(word, ".apps.googleusercontent.com"):
		return "the ID of an OAuth client", "create an API key at https://console.cloud.google.com/apis/credentials"
	case strings.Contains(text, "://"):
		return "a URL", "a URL of a server belongs after endpoint, the one of a list after block"
	case isPath(text):
		return "a path", "did you mean api_key_file?"
	}
	return "", ""
}

// isPath reports whether a text is a path rather than a key. A key in base64 may have slashes,
// even as its first character.
func isPath(text string) bool {
	for _, begin := range []string{"./", "../", "~", `\`} {
		if strings.HasPrefix(text, begin) {
			return true
		}
	}
	if slices.Contains([]string{".key", ".txt", ".json", ".pem", ".conf"}, strings.ToLower(filepath.Ext(text))) {
		return true
	}
	const upper, lower, digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "0123456789"
	_, notBase64 := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	random := notBase64 == nil && strings.ContainsAny(text, upper) && strings.ContainsAny(text, lower) && strings.ContainsAny(text, digits)
	return strings.HasPrefix(text, "/") && !random
}

// CheckKey returns an error about a text that cannot be a key. The text is not in it.
func CheckKey(key string) error {
	if what, cure := notAKey(key); what != "" {
		return fmt.Errorf("this is %s and not a key: %s", what, cure)
	}
	return nil
}

// CheckKeyIn is CheckKey for a key that a file or a variable holds.
func CheckKeyIn(holder, key string) error {
	if what, _ := notAKey(key); what != "" {
		return errors.New(holder + " holds " + what + ": it must hold the key and nothing else")
	}
	return nil
}

// ReadKey reads a file that holds an API key or a token and nothing else. Its errors do not
// quote the file.
func ReadKey(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return KeyIn(path, raw)
}

// KeyIn returns the key or token that a file holds, from its content.
func KeyIn(path string, raw []byte) (string, error) {
	key := strings.TrimSpace(string(raw))
	if key == "" {
		return "", errors.New(path + " is empty")
	}
	return key, CheckKeyIn(path, key)
}
