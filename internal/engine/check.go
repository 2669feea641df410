package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Stanza is where settings come from. It knows where each word was given.
type Stanza interface {
	Given(word string) bool
	// Refuse returns an error about a word, and Warn notes that one protects less than it seems to.
	// "key" is whichever word names the key.
	Refuse(word string, err error) error
	Warn(word, text string)
}

// Words returns the properties that must be identical in server blocks that ask the same server
// with the same key: those that write Settings, except which server is asked and with which key.
func Words() []string {
	return []string{"tls", "protocol", "mode", "lists", "max_entries", "budget", "db", "resolver", "cache"}
}

// Check refuses what cannot have been meant: settings with which no server can be asked. secret is
// the key. Settings that are not online only need words that exist.
func (s Settings) Check(secret string, online bool, in Stanza) error {
	for _, check := range []struct {
		word  string
		check func() error
	}{
		{"protocol", s.checkProtocol},
		{"endpoint", func() error { return protocol.CheckEndpoints(strings.Fields(s.Endpoint)) }},
		{"lists", func() error { return s.checkLists(in) }},
	} {
		if err := check.check(); err != nil {
			return in.Refuse(check.word, fmt.Errorf("%s: %w", check.word, err))
		}
	}
	if !online {
		return nil
	}
	return s.checkServer(secret, in)
}

func (s Settings) checkProtocol() error {
	_, err := protocol.ParseDialect(s.Protocol)
	if near, _ := protocol.ParseDialect(strings.ToLower(s.Protocol)); err != nil && near != nil {
		return fmt.Errorf("%w: did you mean %s?", err, near)
	}
	return err
}

// checkLists refuses lists that the server cannot have or that are no threat lists. Any server but
// Google's may have lists of its own.
func (s Settings) checkLists(in Stanza) error {
	if !in.Given("lists") {
		return nil
	}
	for name := range strings.FieldsSeq(s.Lists) {
		near := protocol.NearestList(name)
		if _, err := updater.Width(name); err != nil {
			if near != "" {
				return fmt.Errorf("%q is not the name of a list: did you mean %s?", name, near)
			}
			return fmt.Errorf("%q is not the name of a list: it must end in -4b, -8b, -16b or -32b", name)
		}
		if name == protocol.GlobalCache {
			return errors.New(protocol.GlobalCache + " lists hosts that are likely safe, it cannot be used to block; mode realtime uses it")
		}
		if err := s.Dialect().CheckList(name, s.Google()); err != nil {
			return err
		}
		if near != "" {
			in.Warn("lists", fmt.Sprintf("%s is not one of Google's lists: did you mean %s? A list that %s does not have blocks nothing, and may keep the others waiting for half an hour", name, near, s.Endpoint))
		}
	}
	return nil
}

// checkServer checks all that is said about the server.
func (s Settings) checkServer(secret string, in Stanza) error {
	d := s.Dialect()
	several := strings.Contains(s.Endpoint, " ")
	switch {
	case !slices.Contains(d.Modes, s.Mode):
		return in.Refuse("mode", fmt.Errorf("protocol %s has no mode %s: leave out one of the two lines", d, s.Mode))
	case !d.Serves(s.Endpoint):
		return in.Refuse("endpoint", fmt.Errorf("%s does not speak protocol %s: leave out endpoint, or name another protocol", s.Endpoint, d))
	case d.Paid && !in.Given("budget"):
		return in.Refuse("protocol", fmt.Errorf("protocol %s: each search costs money: add budget COUNT for the most searches a day, or budget unlimited", d))
	case s.Token && !d.Tokens:
		return in.Refuse("token_file", fmt.Errorf("protocol %s takes no token: use api_key or api_key_file", d))
	case several && d != protocol.DialectV5:
		return in.Refuse("protocol", fmt.Errorf("protocol %s asks one server: leave out the other endpoints, or use protocol %s", d, protocol.DialectV5))
	case in.Given("tls") && s.Google() && !protocol.TakesCertificates(s.Endpoint):
		return in.Refuse("tls", errors.New("tls is for a server of your own: add its endpoint, or leave out tls"))
	}
	if secret == "" && s.Google() {
		in.Warn("endpoint", "Google's server answers nobody without an API key: add api_key KEY or api_key_file FILE")
	}
	if doubt := s.KeyDoubt(secret); doubt != "" {
		in.Warn("key", doubt)
	}
	if _, err := s.Client(secret, new(lookup.Database), nil); err != nil {
		return in.Refuse("key", err)
	}
	return nil
}

// KeyDoubt says why Google will probably refuse the key, or returns "". Its keys have had one
// form for more than ten years; it does not promise that none has another one.
func (s Settings) KeyDoubt(secret string) string {
	if secret == "" || s.Token || !s.Google() || say.IsKey(secret) {
		return ""
	}
	return "the API key does not look like one of Google: those have 39 letters and begin with AIza. If requests are refused with status 400, create one at https://console.cloud.google.com/apis/credentials"
}
