package config

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/version"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Settings are what makes two engines different. It is comparable: server
// blocks whose settings are equal share an engine. Fields with several values
// are joined by a space.
type Settings struct {
	APIKey     string // "": none, or it is in KeyFile
	KeyFile    string // whose content may change while the engine runs; "": none
	Endpoint   string // "": Google's
	Protocol   protocol.Version
	Mode       lookup.Mode
	Lists      string // in mode nostorage they only say which threats block
	MaxEntries int    // 0: no limit
	DB         string // folder; "": in memory only
	Resolvers  string
	Cache      int
}

// engineWords are the properties that write Settings, but for those that say which
// server is asked and with which key.
var engineWords = []string{"protocol", "mode", "lists", "max_entries", "db", "resolver", "cache"}

// EngineWords returns the properties that must be identical in server blocks that
// ask the same server with the same key.
func EngineWords() []string { return slices.Clone(engineWords) }

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

// clientConfig says how the server is reached. A nil transport is the network.
func (s Settings) clientConfig(key string, transport http.RoundTripper) protocol.Config {
	return protocol.Config{
		Endpoint:   s.Endpoint,
		Key:        key,
		UserAgent:  "coredns-safebrowsing/" + version.Number,
		Resolvers:  strings.Fields(s.Resolvers),
		MaxEntries: s.MaxEntries,
		Transport:  transport,
	}
}

// Client returns a client of the server, whose lists are in the database. A nil
// transport is the network.
func (s Settings) Client(key string, database *lookup.Database, transport http.RoundTripper) (protocol.Client, error) {
	if s.Protocol == protocol.Version4 {
		return protocol.NewV4(s.clientConfig(key, transport), s.Stored(), database.Versions)
	}
	return protocol.NewV5(s.clientConfig(key, transport))
}

// Address returns the URL of the server.
func (s Settings) Address() string {
	if s.Endpoint == "" {
		return protocol.DefaultEndpoint
	}
	return s.Endpoint
}

// v4Suffix marks the origin of lists that came by version 4 of the protocol.
const v4Suffix = " v4"

// Origin names the server in stored lists. Lists of either version are in force
// until the other has fetched them, and version 5 goes on with those of version 4,
// whose states it takes for its versions ("Migration From V4"). Each version has
// requests, and so a schedule, of its own.
func (s Settings) Origin(key string) updater.Origin {
	asker := updater.Asker(s.Address(), key)
	if s.Protocol == protocol.Version4 {
		return updater.Origin{Name: s.Address() + v4Suffix, Predecessor: s.Address(), Schedule: "schedule-v4.json", Asker: asker}
	}
	return updater.Origin{Name: s.Address(), Predecessor: s.Address() + v4Suffix, Continues: true, Asker: asker}
}

// SplitOrigin returns the address of the server and the version of the protocol
// by which lists of an origin came.
func SplitOrigin(origin string) (endpoint string, v protocol.Version) {
	if endpoint, ok := strings.CutSuffix(origin, v4Suffix); ok {
		return endpoint, protocol.Version4
	}
	return origin, protocol.Version5
}

// Identity is whom a server takes us for. Its rules are for all engines of one
// identity together, one after the other over reloads.
type Identity struct {
	Address, key, keyFile string
	Protocol              protocol.Version
}

// InOtherVersion is who asks the same server by the other version of the protocol.
func (id Identity) InOtherVersion() Identity {
	if id.Protocol == protocol.Version5 {
		id.Protocol = protocol.Version4
	} else {
		id.Protocol = protocol.Version5
	}
	return id
}

// Identity returns whom the server takes an engine with these settings for.
func (s Settings) Identity() Identity {
	return Identity{s.Address(), s.APIKey, s.KeyFile, s.Protocol}
}

// CheckerConfig says how hosts are decided upon by the version of the protocol. By
// version 4 one search is under way at a time: requests in parallel give no right
// to more of them ("Request Frequency"), and prefixes of other queries ride along.
func (s Settings) CheckerConfig(database *lookup.Database, searcher lookup.Searcher) lookup.Config {
	cfg := lookup.Config{
		Mode:     s.Mode,
		Database: database,
		Searcher: searcher,
		Threats:  threatsOf(strings.Fields(s.Lists)),
		Cache:    s.Cache,
	}
	if s.Protocol == protocol.Version4 {
		cfg.Rule, cfg.AsStored, cfg.Searches = lookup.RuleV4, true, 1
	}
	return cfg
}

// SearchRules are the rules for searches. firstContact draws the first contact; nil:
// as the server demands.
func (s Settings) SearchRules(firstContact func() time.Duration) updater.SearchRules {
	if s.Protocol == protocol.Version4 {
		return updater.SearchRules{Backoff: updater.Strict, Published: true, FirstContact: firstContact}
	}
	return updater.SearchRules{Backoff: updater.Strikes}
}

// threatsOf returns the threats that lists of these names hold. A list whose
// name is not one of Google's may hold any.
func threatsOf(lists []string) (threats lookup.Threats) {
	for _, name := range lists {
		base, _, _ := strings.Cut(name, "-")
		switch base {
		case "se":
			threats = threats.With(lookup.SocialEngineering)
		case "mw":
			threats = threats.With(lookup.Malware)
		case "uws", "uwsa":
			threats = threats.With(lookup.UnwantedSoftware)
		case "pha":
			threats = threats.With(lookup.PotentiallyHarmfulApplication)
		default:
			return lookup.AllThreats
		}
	}
	return threats
}
