package safebrowsing

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/durations"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// config is what stands in the Corefile for one server block.
type config struct {
	zones  plugin.Zones        // names to check
	except plugin.Zones        // of those, names that are not checked
	own    []ownFile           // lists of the operator's own
	hosts  []ownlist.HostEntry // that the Corefile allows
	reply
	confirmTimeout time.Duration  // from when the query came; default 500 ms
	unsureFails    bool           // answer SERVFAIL to a name that could not be confirmed
	limiter        lookup.Limiter // of confirmations; nil: off
	inspect        bool           // check the targets in answers too
	monitor        bool           // decide, but never block
	explain        bool           // answer why
	tests          lookup.Names   // always treated as confirmed, with all names below

	settings
	secret string // the key in settings, or what was in keyFile when the Corefile was read
	online bool   // there is a server to ask
}

const (
	keyVariable           = "SAFEBROWSING_API_KEY"
	defaultLists          = "se-4b mw-4b uws-4b"
	defaultTTL            = 60 * time.Second
	defaultConfirmTimeout = 500 * time.Millisecond
	maxConfirmTimeout     = 10 * time.Second
	defaultRate           = 10 // confirmations a second, of one client
	defaultBurst          = 20
	defaultThreshold      = 3 // deviations
	maxLimit              = 1e6
	minMaxEntries         = 1024 // the least that the server takes
	folderName            = "coredns-safebrowsing"
)

// parser reads the stanza of one server block.
type parser struct {
	*caddy.Controller
	config
	root      string          // what relative file names are relative to
	given     map[string]bool // properties that were there
	testNames []lookup.Host
}

// properties are the words of a stanza. Each is read by a function that gets
// its arguments, of which there are at least least and, unless negative, at most
// most.
var properties = map[string]struct {
	least, most int
	repeats     bool // may stand several times
	usage       string
	read        func(p *parser, args []string) error
}{
	"api_key":         {1, 1, false, "KEY", (*parser).apiKey},
	"api_key_file":    {1, 1, false, "FILE", (*parser).apiKeyFile},
	"endpoint":        {1, 1, false, "URL", (*parser).endpointURL},
	"protocol":        {1, 1, false, "v5|v4", (*parser).protocolOf},
	"mode":            {1, 1, false, "local|realtime|nostorage", (*parser).modeOf},
	"lists":           {1, -1, false, "NAME...", (*parser).listsNamed},
	"max_entries":     {1, 1, false, "COUNT", (*parser).maxEntriesOf},
	"db":              {1, 1, false, "DIRECTORY|off", (*parser).folder},
	"resolver":        {1, -1, false, "ADDRESS...", (*parser).resolver},
	"block":           {1, -1, true, "FILE...", (*parser).blockFiles},
	"allow":           {1, -1, true, "FILE|HOST [until DATE]...", (*parser).allowed},
	"except":          {1, -1, true, "ZONES...", (*parser).exceptZones},
	"respond":         {1, 3, false, "nxdomain|nodata|refused|sinkhole IPV4 [IPV6]", (*parser).respondWith},
	"ttl":             {1, 1, false, "DURATION", (*parser).blockingTTL},
	"confirm_timeout": {1, 1, false, "DURATION", (*parser).timeout},
	"unsure":          {1, 1, false, "pass|servfail", (*parser).unsure},
	"limit":           {1, 3, false, "leaky_bucket [RATE [BURST]] | ema [THRESHOLD] | off", (*parser).limit},
	"inspect":         {1, 1, false, "cname", (*parser).inspectWhat},
	"monitor":         {0, 0, false, "", func(p *parser, _ []string) error { p.monitor = true; return nil }},
	"test":            {1, -1, true, "HOST...", (*parser).testHosts},
	"explain":         {0, 0, false, "", func(p *parser, _ []string) error { p.explain = true; return nil }},
	"structured":      {1, -1, false, "OPTIONCODE [CONTACT...]", (*parser).structuredErrors},
	"cache":           {1, 1, false, "CAPACITY", (*parser).capacity},
}

// parse reads the stanza, the only one of its server block. Errors name file
// and line. Files are relative to root, or to the working directory if it is "".
func parse(c *caddy.Controller, root string) (config, error) {
	p := &parser{Controller: c, root: root, given: make(map[string]bool)}
	p.ttl = defaultTTL
	p.confirmTimeout = defaultConfirmTimeout
	p.lists = defaultLists
	p.limiter = lookup.PerClient(lookup.LeakyBucket{Rate: defaultRate, Capacity: defaultBurst}.Admit)
	for i := 0; c.Next(); i++ {
		if i > 0 {
			return config{}, c.Err("safebrowsing stands twice in this server block: put all its properties into one")
		}
		p.zones = plugin.OriginsFromArgsOrServerBlock(c.RemainingArgs(), c.ServerBlockKeys)
		for c.NextBlock() {
			word := c.Val()
			if err := p.property(word, c.RemainingArgs()); err != nil {
				return config{}, err
			}
		}
	}
	return p.config, p.finish()
}

func (p *parser) property(word string, args []string) error {
	property, ok := properties[word]
	if !ok {
		return p.Errf("unknown property %q", word)
	}
	if p.given[word] && !property.repeats {
		return p.Errf("%s stands twice", word)
	}
	p.given[word] = true
	if len(args) < property.least || property.most >= 0 && len(args) > property.most {
		return p.Errf("%s takes other arguments: %s %s", word, word, property.usage)
	}
	if err := property.read(p, args); err != nil {
		return p.Errf("%s: %v", word, err)
	}
	return nil
}

// finish fills in what the stanza leaves out and checks the whole.
func (p *parser) finish() error {
	if p.secret == "" {
		p.key = os.Getenv(keyVariable)
		p.secret = p.key
	}
	p.online = p.secret != "" || p.endpoint != ""
	p.google = p.endpoint == "" || p.endpoint == protocol.DefaultEndpoint
	p.tests = lookup.NewNames(p.testNames)
	blocks := slices.ContainsFunc(p.own, func(f ownFile) bool { return !f.allow })
	if !p.online && !blocks && p.tests.Len() == 0 {
		return p.Err("nothing to block: add api_key KEY, api_key_file FILE or $" + keyVariable +
			" for Safe Browsing, endpoint URL for a server of your own, or block FILE for a list of your own")
	}
	if !p.online {
		p.settings = settings{}
		return nil
	}
	if !p.given["db"] {
		p.db = defaultFolder()
	}
	if p.settings.protocol == protocol.Version4 && p.mode != lookup.Local {
		return p.Err("mode realtime and mode nostorage need protocol v5: leave out one of the two lines")
	}
	if _, err := p.client(p.secret, new(lookup.Database), nil); err != nil {
		return p.Errf("%v", err)
	}
	return nil
}

// defaultFolder is $STATE_DIRECTORY, which systemd sets for a service, else one
// in the user's cache directory. Without either lists are kept in memory only.
func defaultFolder() string {
	if dirs := os.Getenv("STATE_DIRECTORY"); dirs != "" {
		first, _, _ := strings.Cut(dirs, ":")
		return first
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		log.Warningf("No db is set and there is no folder for it: lists are kept in memory only and fetched anew at each start (%v)", err)
		return ""
	}
	return filepath.Join(cache, folderName)
}

// path returns where a file of the Corefile is.
func (p *parser) path(name string) string {
	if !filepath.IsAbs(name) && p.root != "" {
		return filepath.Join(p.root, name)
	}
	return name
}

func (p *parser) exceptZones(args []string) error {
	for _, arg := range args {
		zones := plugin.Host(arg).NormalizeExact()
		if len(zones) == 0 {
			return errors.New(strconv.Quote(arg) + " is no zone")
		}
		p.except = append(p.except, zones...)
	}
	return nil
}

func (p *parser) timeout(args []string) (err error) {
	p.confirmTimeout, err = duration(args[0], time.Millisecond, maxConfirmTimeout)
	return err
}

func duration(text string, least, most time.Duration) (time.Duration, error) {
	d, err := durations.NewDurationFromArg(text)
	if err != nil || d < least || d > most {
		return 0, errors.New(strconv.Quote(text) + " is not a duration from " + least.String() + " to " + most.String())
	}
	return d, nil
}

func (p *parser) inspectWhat(args []string) error {
	if args[0] != "cname" {
		return errors.New(strconv.Quote(args[0]) + " is not cname")
	}
	p.inspect = true
	return nil
}

func (p *parser) testHosts(args []string) error {
	for _, arg := range args {
		host, ok := lookup.ParseHost(arg)
		if !ok {
			return errors.New(strconv.Quote(arg) + " is no host")
		}
		p.testNames = append(p.testNames, host)
	}
	return nil
}

func (p *parser) unsure(args []string) error {
	switch args[0] {
	case "pass":
	case "servfail":
		p.unsureFails = true
	default:
		return errors.New(strconv.Quote(args[0]) + " is neither pass nor servfail")
	}
	return nil
}

// limit reads a limiter and its numbers.
func (p *parser) limit(args []string) error {
	numbers := map[string][]float64{"leaky_bucket": {defaultRate, defaultBurst}, "ema": {defaultThreshold}, "off": {}}
	n, ok := numbers[args[0]]
	if !ok {
		return errors.New(strconv.Quote(args[0]) + " is none of leaky_bucket, ema, off")
	}
	if len(args)-1 > len(n) {
		return errors.New(args[0] + " takes no " + strconv.Quote(args[1+len(n)]))
	}
	for i, arg := range args[1:] {
		v, err := strconv.ParseFloat(arg, 64)
		if err != nil || !(v > 0 && v <= maxLimit) || i == 1 && v < 1 {
			return errors.New(strconv.Quote(arg) + " is not a number that a limit can have: more than 0, and a burst at least 1")
		}
		n[i] = v
	}
	switch args[0] {
	case "leaky_bucket":
		p.limiter = lookup.PerClient(lookup.LeakyBucket{Rate: n[0], Capacity: n[1]}.Admit)
	case "ema":
		p.limiter = lookup.PerClient(lookup.EMA{Threshold: n[0]}.Admit)
	default:
		p.limiter = nil
	}
	return nil
}
