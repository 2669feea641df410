package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns/caddy"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// parser reads the stanza of one server block.
type parser struct {
	*caddy.Controller
	Config
	root     string  // what relative file names are relative to
	exceptAt []place // of each zone in except
	ownAt    []place // of each list in Own
}

// properties are the words of a stanza. read gets at least minArgs arguments and,
// unless maxArgs is negative, at most maxArgs. No argument is empty.
var properties = map[string]struct {
	minArgs, maxArgs int
	repeats          bool // may be given several times
	usage            string
	read             func(p *parser, args []string) error
}{
	"api_key":         {1, 1, false, "KEY", (*parser).apiKey},
	"api_key_file":    {1, 1, false, "FILE", (*parser).apiKeyFile},
	"token_file":      {1, 1, false, "FILE", (*parser).tokenFile},
	"endpoint":        {1, -1, false, "URL...", (*parser).endpointURLs},
	"tls":             {0, 3, false, "[CERT KEY] [CA]", (*parser).tls},
	"protocol":        {1, 1, false, strings.Join(Protocols, "|"), (*parser).protocolOf},
	"mode":            {1, 1, false, "local|realtime|nostorage", (*parser).modeOf},
	"lists":           {1, -1, false, "NAME...", (*parser).listsNamed},
	"max_entries":     {1, 1, false, "COUNT", (*parser).maxEntriesOf},
	"budget":          {1, 2, false, "unlimited|COUNT [SHARE%]", (*parser).budget},
	"db":              {1, 1, false, "DIRECTORY|off", (*parser).folder},
	"resolver":        {1, -1, false, "ADDRESS...", (*parser).resolver},
	"block":           {1, -1, true, "FILE|URL... [refresh DURATION] [max_bytes SIZE] [wide]", (*parser).blockFiles},
	"allow":           {1, -1, true, "FILE|URL|HOST [until TIME]...", (*parser).allowed},
	"except":          {1, -1, true, "ZONES...", (*parser).exceptZones},
	"respond":         {1, 3, false, answer.Usage(), (*parser).respondWith},
	"ttl":             {1, 1, false, "DURATION", (*parser).blockingTTL},
	"confirm_timeout": {1, 1, false, "DURATION", (*parser).timeout},
	"unsure":          {1, 1, false, "pass|servfail", (*parser).unsure},
	"limit":           {1, 3, false, "leaky_bucket [RATE [BURST]] | ema [THRESHOLD] | off", (*parser).limit},
	"inspect":         {1, 1, false, "cname", (*parser).inspectWhat},
	"log":             {0, 1, false, "[json]", (*parser).logNames},
	"monitor":         {0, 0, false, "", (*parser).monitorOnly},
	"explain":         {0, 0, false, "", func(p *parser, _ []string) error { p.Explain = true; return nil }},
	"status":          {1, 3, false, "ADDRESS [names] [public]", (*parser).statusPage},
	"keep_clients":    {0, 1, false, "[off]", (*parser).keepClients},
	"look_back":       {1, 1, false, "DURATION", (*parser).lookBack},
	"structured":      {1, -1, false, "OPTIONCODE [CONTACT...]", (*parser).structuredErrors},
	"cache":           {1, 1, false, "COUNT|SIZE", (*parser).capacity},
}

// Usages returns what each property takes, by its word.
func Usages() map[string]string {
	all := make(map[string]string, len(properties))
	for word, property := range properties {
		all[word] = property.usage
	}
	return all
}

// onlySafeBrowsing are the properties that have no effect on the operator's own lists.
var onlySafeBrowsing = []string{
	"tls", "protocol", "mode", "lists", "max_entries", "budget", "resolver", "confirm_timeout", "unsure", "limit", "cache", "look_back",
}

// Parse reads the stanza of a server block; a second stanza is an error. Errors name
// file and line. Files are relative to root, or to the working directory if root is
// "". Parse writes no log: Warnings and Notes are for the caller to log. No text of its
// result holds what looks like a key: that may stand in any place of a Corefile by mistake.
func Parse(c *caddy.Controller, root string) (Config, error) {
	cfg, err := parsed(c, root)
	for _, texts := range [][]string{cfg.Warnings, cfg.Notes} {
		for i := range texts {
			texts[i] = say.Masked(texts[i])
		}
	}
	return cfg, say.MaskedError(err)
}

func parsed(c *caddy.Controller, root string) (Config, error) {
	p := &parser{Controller: c, root: root}
	p.given = make(map[string]place)
	p.TTL = defaultTTL
	p.ConfirmTimeout = DefaultConfirmTimeout
	p.Lists = DefaultLists
	p.Engine.Protocol = Protocols[0]
	p.Limiter = lookup.PerClient(lookup.LeakyBucket{Rate: DefaultRate, Capacity: DefaultBurst}.Admit)
	for i := 0; c.Next(); i++ {
		if i > 0 {
			return Config{}, p.secondStanza()
		}
		if err := p.stanza(); err != nil {
			return Config{}, err
		}
	}
	// Two statements: in one, Go does not specify whether p.Config is read before or
	// after finish changes it (Go specification, "Order of evaluation").
	if err := p.finish(); err != nil {
		return Config{}, err
	}
	return p.Config, nil
}

func (p *parser) stanza() error {
	p.begin = p.here()
	p.Place = place{filepath.Base(p.begin.file), p.begin.line}.String()
	if err := p.readZones(p.RemainingArgs()); err != nil {
		return p.Errf("%v", err)
	}
	for p.NextBlock() {
		word := p.Val()
		if err := p.property(word, p.RemainingArgs()); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) property(word string, args []string) error {
	property, ok := properties[word]
	switch at, again := p.given[word]; {
	case word == "}" || slices.Contains(args, "}"):
		return p.Errf("a } must be on a line of its own, and so must each property")
	case !ok:
		return p.Errf("%v", unknownProperty(word, p.Line()))
	case p.NextArg(): // RemainingArgs ends before a {
		return p.Errf("%s takes no braces%s", word, unlessPlugin(word, p.Line()))
	case again && !property.repeats:
		return p.Errf("%s is given more than once: it is at %s already", word, at)
	case len(args) < property.minArgs || property.maxArgs >= 0 && len(args) > property.maxArgs:
		return p.Errf("%s%s", wrongArguments(word), unlessPlugin(word, p.Line()))
	case slices.Contains(args, ""):
		return p.Errf("%s: an argument is empty: is it a variable that is not set?", word)
	case hasSecret(word, args):
		return p.Errf("%s: this looks like an API key or a token: write it after api_key, or into the file that api_key_file or token_file names", word)
	case property.maxArgs < 0 && word != "structured" && slices.ContainsFunc(args, hasComma):
		return p.Errf("%s: separate the arguments by spaces, without commas", word)
	}
	p.given[word] = p.here()
	if err := property.read(p, args); err != nil {
		return p.Errf("%s: %v", word, err)
	}
	return nil
}

// finish fills in what the stanza leaves out and checks the whole.
func (p *parser) finish() error {
	if p.Secret == "" { // the key is not in the Corefile
		var err error
		if p.Secret, p.KeyFile, err = KeyOfProcess(); err != nil {
			return p.begin.errorf("%v", err)
		}
		if p.KeyFile == "" {
			p.APIKey = p.Secret
		}
	}
	p.Online = p.Secret != "" || p.Endpoint != ""
	p.Service = serviceOf(p.Engine.Protocol)
	blocks := slices.ContainsFunc(p.Own, func(f OwnFile) bool { return !f.Allow })
	if !p.Online && !blocks {
		return p.begin.errorf("nothing to block: add api_key KEY, api_key_file FILE%s or $%s for %s, endpoint URL for a server of your own, or block FILE or block URL for a list of your own",
			p.orToken(" FILE"), KeyVariable, p.Service)
	}
	if err := p.checkExcept(); err != nil {
		return err
	}
	if !p.Given("db") && (p.Online || p.hasURLs()) {
		p.defaultFolder()
	}
	p.completeURLs()
	if trouble := proxyTrouble(); trouble != "" && (p.Online || p.hasURLs()) {
		p.begin.warn(p, "%s", trouble)
	}
	if !p.Online {
		p.off()
		return nil
	}
	if p.LookBack > 0 && p.Mode == lookup.NoStorage {
		p.given["look_back"].warn(p, "look_back has no effect with mode nostorage: there are no lists that could have a name later")
	}
	if p.Budget > 0 && p.DB == "" {
		p.given["budget"].warn(p, "db is off: the budget is kept in memory, and each start of the process begins a new one")
	}
	return p.checkEndpoints()
}

// orToken returns the property that names a token, if the protocol takes one.
func (p *parser) orToken(usage string) string {
	if p.Engine.Protocol != webRisk {
		return ""
	}
	return ", token_file" + usage
}

// off notes that the service is off. It warns instead if the stanza has properties that
// are for the service only.
func (p *parser) off() {
	cure := "set api_key, api_key_file" + p.orToken("") + " or $" + KeyVariable
	if os.Getenv("CREDENTIALS_DIRECTORY") != "" {
		cure = "put the key into the file of the credential " + Credential + " and restart the service, or " + cure
	}
	var unused []string
	for _, word := range onlySafeBrowsing {
		if p.Given(word) && !(word == "resolver" && p.hasURLs()) { // lists by URL are resolved, too
			unused = append(unused, word)
		}
	}
	if len(unused) > 0 {
		p.begin.warn(p, "%s is OFF: there is no API key, and these properties have no effect: %s. %s, or remove them", p.Service, strings.Join(unused, ", "), strings.ToUpper(cure[:1])+cure[1:])
		return
	}
	p.Notes = append(p.Notes, p.Service+" is off, only the operator's own lists are in force: to switch it on "+cure)
}

// defaultFolder sets the default directory of the lists. If there is none, they are
// kept in memory only.
func (p *parser) defaultFolder() {
	var err error
	if p.DB, err = DefaultFolder(); err != nil {
		p.begin.warn(p, "there is no directory for the lists (%v): they are kept in memory only, and each start fetches all of them; add db DIRECTORY", err)
	}
}

// path returns where a file of the Corefile is.
func (p *parser) path(name string) string {
	if !filepath.IsAbs(name) && p.root != "" {
		return filepath.Join(p.root, name)
	}
	return name
}

func (p *parser) timeout(args []string) (err error) {
	p.ConfirmTimeout, err = duration(args[0], time.Millisecond, maxConfirmTimeout)
	return err
}

func (p *parser) keepClients(args []string) error {
	p.Keep = KeepCanaries
	if len(args) == 1 {
		p.Keep = KeepNothing
		if args[0] != "off" {
			return fmt.Errorf("%q: keep_clients takes off or nothing", args[0])
		}
	}
	return nil
}

// The bounds of look_back. Lists are fetched every 5 to 30 minutes, and what is older than a day tells little.
const (
	minLookBack = 10 * time.Minute
	maxLookBack = 24 * time.Hour
)

func (p *parser) lookBack(args []string) (err error) {
	p.LookBack, err = duration(args[0], minLookBack, maxLookBack)
	return err
}

func (p *parser) inspectWhat(args []string) error {
	_, err := choice(args[0], "cname")
	p.Inspect = err == nil
	return err
}

func (p *parser) monitorOnly([]string) error {
	p.Monitor = true
	p.here().warn(p, "the server block for %s has monitor: nothing is blocked, names that would be are only logged", strings.Join(p.Zones, ", "))
	return nil
}

func (p *parser) logNames(args []string) error {
	p.LogBlocked = true
	p.LogJSON = len(args) == 1 && args[0] == "json"
	if len(args) == 1 && !p.LogJSON {
		return fmt.Errorf("%q: log takes json or nothing, and writes to where CoreDNS logs", args[0])
	}
	return nil
}

func (p *parser) unsure(args []string) error {
	i, err := choice(args[0], "pass", "servfail")
	p.UnsureFails = i == 1
	return err
}

// limit reads a limiter and its numbers.
func (p *parser) limit(args []string) error {
	numbers := map[string][]float64{"leaky_bucket": {DefaultRate, DefaultBurst}, "ema": {defaultThreshold}, "off": {}}
	if _, err := choice(args[0], "leaky_bucket", "ema", "off"); err != nil {
		if _, notNumber := strconv.ParseFloat(args[0], 64); notNumber == nil {
			err = fmt.Errorf("%w: did you mean limit leaky_bucket %s?", err, strings.Join(args, " "))
		}
		return err
	}
	n := numbers[args[0]]
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
		p.Limiter = lookup.PerClient(lookup.LeakyBucket{Rate: n[0], Capacity: n[1]}.Admit)
	case "ema":
		p.Limiter = lookup.PerClient(lookup.EMA{Threshold: n[0]}.Admit)
	default:
		p.Limiter = nil
	}
	return nil
}

func (p *parser) respondWith(args []string) error {
	i, err := choice(args[0], answer.Words()...)
	response := lookup.Response(i)
	switch _, notAddress := netip.ParseAddr(args[0]); {
	case err != nil && notAddress == nil:
		return fmt.Errorf("%w: did you mean respond sinkhole %s?", err, strings.Join(args, " "))
	case err != nil:
		return err
	case response != lookup.Sinkhole && len(args) > 1:
		return errors.New(args[0] + " takes no address")
	}
	p.Respond, p.Overrides = response, true
	if response == lookup.Sinkhole {
		return p.sinkhole(args[1:])
	}
	return nil
}

// sinkhole reads an IPv4 address, and an IPv6 address after it if there is one. Without an
// IPv4 address all queries for one would be answered with no address at all.
func (p *parser) sinkhole(args []string) error {
	ordered := true
	for _, arg := range args {
		addr, err := netip.ParseAddr(arg)
		if err != nil || addr.Zone() != "" {
			return errors.New(strconv.Quote(arg) + " is not an IP address")
		}
		switch addr = addr.Unmap(); {
		case addr.Is4() && !p.IPv4.IsValid():
			p.IPv4 = addr
		case addr.Is6() && !p.IPv6.IsValid():
			p.IPv6, ordered = addr, p.IPv4.IsValid()
		default:
			return errors.New("sinkhole takes one IPv4 and one IPv6 address")
		}
	}
	const usage = "sinkhole takes an IPv4 address, and may take an IPv6 address after it"
	switch {
	case !p.IPv4.IsValid() && !p.IPv6.IsValid():
		return errors.New(usage)
	case !p.IPv4.IsValid():
		return fmt.Errorf("%s: write respond sinkhole 0.0.0.0 %s", usage, p.IPv6)
	case !ordered:
		return fmt.Errorf("%s: write respond sinkhole %s %s", usage, p.IPv4, p.IPv6)
	}
	return nil
}

func (p *parser) blockingTTL(args []string) (err error) {
	if p.TTL, err = duration(args[0], 0, answer.MaxTTL); err == nil && p.TTL%time.Second != 0 {
		err = errors.New(strconv.Quote(args[0]) + " is not a number of whole seconds, as a TTL must be")
	}
	return err
}

func (p *parser) structuredErrors(args []string) error {
	code, err := number(args[0], 1, 65535)
	if err != nil {
		return err
	}
	for _, contact := range args[1:] {
		if !strings.HasPrefix(contact, "mailto:") && !strings.HasPrefix(contact, "tel:") {
			return errors.New(strconv.Quote(contact) + " is not a contact: it must begin with mailto: or tel:")
		}
	}
	p.Structured = answer.Structured{Code: uint16(code), Contacts: args[1:]}
	return nil
}

// statusPage reads where the status page is served.
func (p *parser) statusPage(args []string) error {
	public := false
	for _, word := range args[1:] {
		switch word {
		case "names":
			p.StatusNames = true
		case "public":
			public = true
		default:
			return fmt.Errorf("%q is neither names nor public", word)
		}
	}
	host, port, err := net.SplitHostPort(args[0])
	if err != nil {
		return fmt.Errorf("%q is not an address with a port, such as 127.0.0.1:8053", args[0])
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: the port is not a number from 0 to 65535", args[0])
	}
	addr, err := netip.ParseAddr(host)
	if err != nil && host != "localhost" && host != "" {
		return fmt.Errorf("%q: %q is not an IP address", args[0], host)
	}
	if private := host == "localhost" || addr.Unmap().IsLoopback(); !private && !public {
		return fmt.Errorf("other machines can reach %s, and the page tells them what is blocked: add public if that is wanted, or use 127.0.0.1:%s", args[0], port)
	}
	p.Status = args[0]
	return nil
}
