// Package config reads the stanza of one server block of a Corefile into one value.
//
//	stanza ──▶ Parse ──▶ Config ─┬─ Engine ──▶ engine.Settings: which engine, shared by server blocks
//	                             └─ Block ───▶ what this server block decides and answers
//
// It turns words into values and knows no server: engine.Settings.Check says what is wrong with
// what a stanza says about one, and Config where. It writes no log: Config has the warnings and
// notes for the caller to log.
package config

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/plugin"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Config is what the Corefile says in one server block. It does not change after
// Parse.
type Config struct {
	Block
	Engine
	Secret string // APIKey, or what was in KeyFile when the Corefile was read
	Online bool   // there is a server to ask

	Warnings []string // of what protects less than it seems to; each with file and line
	Notes    []string // lines for the log at the start; each with file and line

	begin place            // of the word safebrowsing
	given map[string]place // properties that were there; of several the last one
	flags bool             // they came from a command line, and have no place
}

// Engine is what a stanza says of the server that is asked and of what is kept of it: engine.Settings
// has the same fields, and says what they mean.
type Engine struct {
	APIKey     string
	KeyFile    string
	Token      bool
	Endpoint   string
	CA         string
	Cert       string
	CertKey    string
	Protocol   string
	Mode       lookup.Mode
	Lists      string
	MaxEntries int
	Budget     int
	Share      int
	DB         string
	Resolvers  string
	Cache      int
}

// Protocols are the words of protocol, the default first.
var Protocols = []string{"v5", "v4", webRisk}

// webRisk is the protocol of another service than Safe Browsing. It takes tokens instead of keys.
const webRisk = "webrisk"

// serviceOf returns what Google calls the service that is asked by a protocol.
func serviceOf(protocol string) string {
	if protocol == webRisk {
		return "Web Risk"
	}
	return "Safe Browsing"
}

// Block is what a server block decides and answers by. Server blocks with different
// ones may share an engine.
type Block struct {
	Place  string              // of the stanza, such as Corefile:5
	Zones  plugin.Zones        // names to check
	Except plugin.Zones        // of those, names that are not checked
	Own    []OwnFile           // lists of the operator's own
	Hosts  []ownlist.HostEntry // that the Corefile allows
	answer.Reply
	ConfirmTimeout time.Duration  // from when the query came; default 500 ms
	UnsureFails    bool           // answer SERVFAIL to a name that could not be confirmed
	Limiter        lookup.Limiter // of confirmations; nil: off
	Inspect        bool           // check the targets in answers too
	LogBlocked     bool           // log each name that is blocked
	LogJSON        bool           // as JSON, one object a line
	Monitor        bool           // decide, but never block
	Explain        bool           // answer why
	Keep           Keep           // which names are answered here so that clients stay
	Status         string         // "address:port" of the status page; "": none
	StatusNames    bool           // it shows the names that this server block has blocked
	LookBack       time.Duration  // for how long it is kept who asked for what; 0: not at all
}

// Keep says which names are answered here, and not forwarded, so that clients keep asking this server.
// The zero Keep means a stanza without keep_clients.
type Keep uint8

const (
	KeepResolver Keep = iota // resolver.arpa only
	KeepCanaries             // and the names by which browsers and systems ask the network
	KeepNothing
)

// OwnFile is a list of the operator's own, as the Corefile names it.
type OwnFile struct {
	Path  string            // "" if Fetch has a URL
	Fetch ownlist.URLConfig // of a list by URL; else it has no URL
	Allow bool              // names in it are never blocked; else names in it are blocked
}

// Fetches returns how the lists by URL are fetched, in the order of the Corefile.
func (b *Block) Fetches() (all []ownlist.URLConfig) {
	for _, f := range b.Own {
		if f.Fetch.URL != "" {
			all = append(all, f.Fetch)
		}
	}
	return all
}

// Name returns what logs, metrics and answers call the list.
func (f OwnFile) Name() string {
	if f.Fetch.URL != "" {
		return f.Fetch.Name()
	}
	return f.Path
}

// DefaultLists are the lists that protect unless the Corefile says otherwise,
// joined by a space.
const DefaultLists = "se-4b mw-4b uws-4b"

// DefaultConfirmTimeout is how long a query waits for its confirmation.
const DefaultConfirmTimeout = 500 * time.Millisecond

// DefaultRate and DefaultBurst limit the confirmations of one client: DefaultRate a
// second, after DefaultBurst at once.
const (
	DefaultRate  = 10
	DefaultBurst = 20
)

const (
	defaultTTL        = 60 * time.Second
	maxConfirmTimeout = 10 * time.Second
	defaultThreshold  = 3 // deviations
	maxLimit          = 1e6
	minMaxEntries     = 1024 // the least that the server takes
	maxMaxEntries     = 1 << 24
	fewEntries        = 100_000
	maxBudget         = 1e9 // searches a day
)

// DefaultFolder returns where lists are kept unless the Corefile says otherwise:
// $STATE_DIRECTORY, which systemd sets for a service, else a folder in the user's
// cache directory. It is an error if there is neither.
func DefaultFolder() (string, error) {
	if dirs := os.Getenv("STATE_DIRECTORY"); dirs != "" {
		first, _, _ := strings.Cut(dirs, ":")
		return first, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "coredns-safebrowsing"), nil
}

// PauseFolder returns the folder in which the command line writes that names pass: the one
// of the lists, else the default one. It returns "" if there is neither.
func (c *Config) PauseFolder() string {
	if c.DB != "" {
		return c.DB
	}
	folder, err := DefaultFolder()
	if err != nil {
		return ""
	}
	return folder
}

// stanzaFlags are the flags of commands that have the meaning of a property of the Corefile,
// which has the same name with an underscore. Their arguments are separated by commas.
var stanzaFlags = []string{"api-key-file", "token-file", "endpoint", "protocol", "lists", "max-entries", "budget", "resolver", "cache"}

// Flags are a command's flags. Flags that it does not have are not set.
type Flags interface {
	IsSet(name string) bool
	String(name string) string
	Bool(name string) bool
}

// ParseFlags makes the parser of the Corefile read the flags of a command, so that both allow
// the same. folder is "off" for none.
func ParseFlags(flags Flags, folder string) (Config, error) {
	secured, err := TLSLine(flags.String("endpoint-cert"), flags.String("endpoint-ca"))
	if err != nil {
		return Config{}, err
	}
	lines := [][]string{{say.Plugin, "{"}, {"db", folder}, secured}
	for _, flag := range stanzaFlags {
		if flags.IsSet(flag) {
			lines = append(lines, append([]string{strings.ReplaceAll(flag, "-", "_")}, strings.Split(flags.String(flag), ",")...))
		}
	}
	if flags.Bool("realtime") {
		lines = append(lines, []string{"mode", "realtime"})
	}
	var tokens []caddyfile.Token
	for i, line := range append(lines, []string{"}"}) {
		for _, word := range line {
			tokens = append(tokens, caddyfile.Token{File: "flags", Line: i + 1, Text: word})
		}
	}
	controller := &caddy.Controller{Dispenser: caddyfile.NewDispenserTokens("flags", tokens), ServerBlockKeys: []string{"."}}
	cfg, err := Parse(controller, "")
	if err != nil {
		return Config{}, asFlags(err)
	}
	cfg.flags = true
	for i, warning := range cfg.Warnings {
		cfg.Warnings[i] = asFlags(errors.New(warning)).Error()
	}
	return cfg, nil
}

var stanzaPlace = regexp.MustCompile(`^(flags:\d+:? *(- )?)?(Error during parsing: )?`)

// asFlags takes the place in the stanza out of a text of the parser: there is no file that
// the operator could open.
func asFlags(err error) error {
	return errors.New(stanzaPlace.ReplaceAllString(err.Error(), ""))
}
