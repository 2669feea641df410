package engine

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Settings are what makes two engines different. It is comparable: server
// blocks whose settings are equal share an engine. Fields with several values
// are joined by a space. They are what a stanza says, see config.Engine.
type Settings struct {
	APIKey     string // "": none, or it is in KeyFile
	KeyFile    string // whose content may change while the engine runs; "": none
	Token      bool   // KeyFile holds an OAuth access token, not an API key
	Endpoint   string // "": Google's; several stand in for each other, the first is preferred
	CA         string // certificates, in PEM, that vouch for the endpoints; "": the system's
	Cert       string // the file of the certificate that proves to the endpoints who asks; "": none
	CertKey    string // the file of its key
	Protocol   string // the name of a protocol.Dialect; "": the default
	Mode       lookup.Mode
	Lists      string // in mode nostorage they only say which threats block
	MaxEntries int    // 0: no limit
	Budget     int    // searches a day; 0: no limit
	Share      int    // of the budget that is each client's own, in percent; 0: without a budget
	DB         string // folder; "": in memory only
	Resolvers  string
	Cache      int
}

// Dialect returns the protocol by which the server is asked, the default one if Protocol is not
// the name of one.
func (s Settings) Dialect() *protocol.Dialect {
	d, err := protocol.ParseDialect(s.Protocol)
	if err != nil {
		d = protocol.DialectV5
	}
	return d
}

// Stored returns the lists that the updater keeps.
func (s Settings) Stored() []string {
	switch s.Mode {
	case lookup.RealTime:
		return append(strings.Fields(s.Lists), protocol.GlobalCache)
	case lookup.NoStorage:
		return nil
	}
	return strings.Fields(s.Lists)
}

// Client returns a client of the server, whose lists are in the database. With several
// endpoints it is a *protocol.Failover. A nil transport is the network.
func (s Settings) Client(key string, database *lookup.Database, transport http.RoundTripper) (protocol.Client, error) {
	endpoints := s.Endpoints()
	var clients []protocol.Client
	for _, endpoint := range endpoints {
		client, err := s.Dialect().NewClient(protocol.Config{
			Endpoint:   endpoint,
			CA:         s.CA,
			Cert:       protocol.CertFiles{Cert: s.Cert, Key: s.CertKey},
			Key:        key,
			UserAgent:  "coredns-safebrowsing/" + say.Version,
			Resolvers:  strings.Fields(s.Resolvers),
			MaxEntries: s.MaxEntries,
			Bearer:     s.Token,
			Transport:  transport,
		}, s.Stored(), database.Versions)
		if err != nil {
			return nil, err
		}
		clients = append(clients, client)
	}
	if len(clients) == 1 {
		return clients[0], nil
	}
	return protocol.NewFailover(endpoints, clients), nil
}

// Endpoints returns the URLs of the servers that may be asked, the preferred one first.
func (s Settings) Endpoints() []string { return strings.Fields(s.Address()) }

// At returns the settings with one endpoint instead of all.
func (s Settings) At(endpoint string) Settings {
	s.Endpoint = endpoint
	return s
}

// Address returns the URL of the server, or of all endpoints joined by a space.
func (s Settings) Address() string {
	if s.Endpoint == "" {
		return s.Dialect().Endpoint
	}
	return s.Endpoint
}

// Credential returns what the server knows us by, in words.
func (s Settings) Credential() string {
	if s.Token {
		return "token"
	}
	return "API key"
}

// fromStart continues "a new key is tried within a minute" where that does not begin with a change of KeyFile. systemd
// makes a copy of a credential when it starts a service, see systemd.exec(5).
func (s Settings) fromStart() string {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	switch {
	case s.KeyFile == "":
		return " after a reload or restart"
	case dir != "" && filepath.Dir(s.KeyFile) == filepath.Clean(dir):
		return " after a restart: the service has a copy of the original"
	}
	return ""
}

// ProviderOf returns who provides what the server says. If Google does not run the server, a relay
// may say so with each answer: the last one to the client counts, or before the first one what was
// saved with the lists.
func (s Settings) ProviderOf(client protocol.Client, schedule *updater.Schedule) protocol.Provider {
	if s.Google() {
		return s.Dialect().ProviderAt(s.Endpoint)
	}
	url, known := client.Advisory()
	if !known {
		url = schedule.Advisory()
	}
	return protocol.ProviderOf(url)
}

// Google reports whether Google runs the server.
func (s Settings) Google() bool { return protocol.IsGoogle(s.Endpoint) }

// Ending returns the end of the protocol at the server.
func (s Settings) Ending() protocol.Ending { return s.Dialect().EndingAt(s.Endpoint) }

// Origin names the server and the protocol in stored lists, and the key by which it is
// asked. Several endpoints are one server, whatever their order: they have the same
// versions. So lists stay in force when endpoints are added or removed.
func (s Settings) Origin(key string) updater.Origin {
	asker, token := updater.Asker(s.service(), key), ""
	if s.Token { // tokens follow one another, and the asker stays the same
		asker, token = updater.Asker(s.service(), ""), asker
	}
	origin := s.Dialect().Origin(s.service(), asker)
	origin.Token = token
	origin.Related = func(name string) bool {
		address, by := protocol.SplitOrigin(name)
		return by == s.Dialect() && Overlap(address, s.Address())
	}
	return origin
}

// Overlap reports whether two addresses have an endpoint in common.
func Overlap(a, b string) bool {
	others := strings.Fields(b)
	return slices.ContainsFunc(strings.Fields(a), func(endpoint string) bool { return slices.Contains(others, endpoint) })
}

// service names the server: it is Address, but does not depend on the order of several
// endpoints.
func (s Settings) service() string {
	endpoints := s.Endpoints()
	slices.Sort(endpoints)
	return strings.Join(endpoints, " ")
}

// listsAs reports whether other settings have the same lists, in any order.
func (s Settings) listsAs(other Settings) bool {
	return slices.Equal(slices.Sorted(strings.FieldsSeq(s.Lists)), slices.Sorted(strings.FieldsSeq(other.Lists)))
}

// Identity is whom a server takes us for. Its rules are for all engines of one
// identity together, one after the other over reloads.
type Identity struct {
	Address, key, keyFile string
	Protocol              *protocol.Dialect
}

// By returns who asks the same server by another protocol.
func (id Identity) By(d *protocol.Dialect) Identity {
	id.Protocol = d
	return id
}

// server returns what is the same for all who ask a server by one protocol.
func (id Identity) server() Identity { return Identity{Address: id.Address, Protocol: id.Protocol} }

// Identity returns whom the server takes an engine with these settings for.
func (s Settings) Identity() Identity {
	return Identity{s.service(), s.APIKey, s.KeyFile, s.Dialect()}
}

// CheckerConfig says how hosts are decided upon.
func (s Settings) CheckerConfig(database *lookup.Database, searcher lookup.Searcher) lookup.Config {
	return lookup.Config{
		Mode:      s.Mode,
		Database:  database,
		Searcher:  searcher,
		Threats:   protocol.ThreatsOf(strings.Fields(s.Lists)),
		Cache:     s.Cache,
		Rule:      s.Dialect().Rule,
		AsStored:  s.Dialect().AsStored,
		Searches:  s.Dialect().Searches,
		PerSearch: s.Dialect().PerSearch,
	}
}

// SearchRules are the rules for searches. firstContact draws the first contact; nil:
// as the server demands.
func (s Settings) SearchRules(firstContact func() time.Duration) updater.SearchRules {
	rules := s.Dialect().SearchRules
	rules.FirstContact = firstContact
	return rules
}
