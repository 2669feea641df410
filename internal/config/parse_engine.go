package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// keyWords are the properties that say with which key the server is asked.
var keyWords = []string{"api_key", "api_key_file", "token_file"}

// onlyKey returns an error if another property than word has named a key.
func (p *parser) onlyKey(word string) error {
	for _, other := range keyWords {
		if p.Given(other) && other != word {
			return fmt.Errorf("the stanza has %s, too: keep one of the two", other)
		}
	}
	return nil
}

func (p *parser) apiKey(args []string) error {
	p.APIKey, p.Secret = args[0], args[0]
	return cmp.Or(p.onlyKey("api_key"), say.CheckKey(args[0]))
}

func (p *parser) apiKeyFile(args []string) error {
	return cmp.Or(p.onlyKey("api_key_file"), p.readKeyFile(args[0]))
}

func (p *parser) tokenFile(args []string) error {
	p.Token = true
	return cmp.Or(p.onlyKey("token_file"), p.readKeyFile(args[0]))
}

func (p *parser) readKeyFile(name string) (err error) {
	p.KeyFile = p.path(name)
	p.Secret, err = say.ReadKey(p.KeyFile)
	return err
}

// budget reads how many searches a day may be made, and what part of them one client
// may cause.
func (p *parser) budget(args []string) (err error) {
	p.Budget, p.Share = 0, lookup.DefaultShare
	if len(args) == 2 {
		percent, ok := strings.CutSuffix(args[1], "%")
		if p.Share, err = number(percent, 1, 100); err != nil || !ok {
			return fmt.Errorf("%q is not a share of the budget such as 10%%", args[1])
		}
	}
	switch {
	case strings.Contains(args[0], "$"):
		return moneyBudget(args[0])
	case args[0] != "unlimited":
		p.Budget, err = number(args[0], 1, maxBudget)
	case len(args) == 2:
		err = errors.New("unlimited takes no share")
	default:
		p.Share = 0
	}
	return err
}

// moneyBudget returns the error about a budget in dollars.
func moneyBudget(text string) error {
	dollars, err := strconv.ParseFloat(strings.Trim(text, "$"), 64)
	if err != nil || !(dollars > 0 && dollars*lookup.SearchesPerDollar <= maxBudget) {
		return fmt.Errorf("%q: a budget counts searches, and %d of Web Risk cost 1 US-$", text, lookup.SearchesPerDollar)
	}
	return fmt.Errorf("%q: a budget counts searches: %v US-$ are %d", text, dollars, int(dollars*lookup.SearchesPerDollar))
}

func (p *parser) protocolOf(args []string) error {
	p.Engine.Protocol = args[0]
	return nil
}

func (p *parser) modeOf(args []string) error {
	i, err := choice(args[0], "local", "realtime", "nostorage")
	p.Mode = []lookup.Mode{lookup.Local, lookup.RealTime, lookup.NoStorage}[i]
	return err
}

func (p *parser) listsNamed(args []string) error {
	for i, name := range args {
		if slices.Contains(args[:i], name) {
			return errors.New(name + " is given more than once")
		}
	}
	p.Lists = strings.Join(args, " ")
	return nil
}

func (p *parser) maxEntriesOf(args []string) (err error) {
	p.MaxEntries, err = number(args[0], minMaxEntries, maxMaxEntries)
	if err == nil && p.MaxEntries < fewEntries {
		p.here().warn(p, "max_entries %s: the server leaves out the rest of a longer list, and names in it pass; write %d or more, or remove the line", args[0], fewEntries)
	}
	return err
}

// answerBytes are the most that a cached answer takes, with its share of full hashes.
const answerBytes = 300

func (p *parser) capacity(args []string) (err error) {
	text := args[0]
	if first, last := text[0], text[len(text)-1]; '0' <= first && first <= '9' && ('0' > last || last > '9') {
		bytes, err := size(text, 1<<10, 4<<30)
		p.Engine.Cache = int(bytes / answerBytes)
		return err
	}
	p.Engine.Cache, err = number(text, 1, 1<<30)
	return err
}

// notOff are words for off that would make a directory.
var notOff = []string{"off", "no", "none", "false", "never", "disabled", "memory", "0"}

func (p *parser) folder(args []string) error {
	word := args[0]
	if word == "off" {
		p.DB = ""
		return nil
	}
	switch {
	case strings.HasPrefix(word, "~"):
		return fmt.Errorf("%q: a Corefile knows no ~: write the whole path, or {$HOME}%s", word, word[1:])
	case strings.HasPrefix(word, "$"):
		name, _, _ := strings.Cut(word[1:], "/")
		return fmt.Errorf("%q: a Corefile spells variables {$%s}", word, strings.Trim(name, "{}"))
	case slices.Contains(notOff, strings.ToLower(word)):
		return fmt.Errorf("%q: did you mean off? (write ./%s for a directory of that name)", word, word)
	}
	p.DB = filepath.Clean(p.path(word))
	if info, err := os.Stat(p.DB); err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a directory: name one, or move it away", p.DB)
	}
	return nil
}

func (p *parser) resolver(args []string) error {
	var all []string
	for _, arg := range args {
		address, err := resolverAddress(arg)
		if err != nil {
			return err
		}
		all = append(all, address)
	}
	p.Resolvers = strings.Join(all, " ")
	return nil
}

// resolverAddress returns "address:port" of a name server.
func resolverAddress(arg string) (string, error) {
	if scheme, address, ok := strings.Cut(arg, "://"); ok {
		if _, err := resolverAddress(address); err != nil {
			address = "an IP address such as 8.8.8.8"
		}
		return "", fmt.Errorf("%q: resolvers are asked by plain DNS, not by %s: write %s", arg, scheme, address)
	}
	if addr, err := netip.ParseAddr(strings.Trim(arg, "[]")); err == nil && !strings.Contains(arg, "]:") { // a zone may be any text
		return net.JoinHostPort(addr.String(), "53"), nil
	}
	host, port, err := net.SplitHostPort(arg)
	if err != nil {
		host = ""
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return "", fmt.Errorf("%q is not an IP address: write one such as 9.9.9.9 or 9.9.9.9:53", arg)
	}
	if _, err := number(port, 1, 65535); err != nil {
		return "", fmt.Errorf("the port %w", err)
	}
	return net.JoinHostPort(addr.String(), port), nil
}

func (p *parser) endpointURLs(args []string) error {
	for i, arg := range args {
		if base := strings.TrimSuffix(arg, "/"); base != "" { // else there would be none, and Google be asked
			args[i] = base
		}
	}
	p.Endpoint = strings.Join(args, " ")
	return nil
}

// maxCA is the most bytes of a file of certificates. The system's have 200 kB.
const maxCA = 1 << 20

// tls reads [CERT KEY] [CA], as the words tls of forward and grpc do: the authorities that sign the
// servers' certificates, by default the system's, and this client's certificate.
func (p *parser) tls(args []string) error {
	for _, arg := range args {
		if info, err := os.Stat(p.path(arg)); err == nil && !info.Mode().IsRegular() { // opening a named pipe would block
			return fmt.Errorf("%s is not a regular file", p.path(arg))
		}
	}
	if len(args) >= 2 {
		p.Cert, p.CertKey = p.path(args[0]), p.path(args[1])
		if _, err := tls.LoadX509KeyPair(p.Cert, p.CertKey); err != nil {
			return fmt.Errorf("%s and %s: %w", p.Cert, p.CertKey, err)
		}
		args = args[2:]
	}
	if len(args) == 0 {
		return nil
	}
	return p.readCA(p.path(args[0]))
}

// TLSLine returns the property tls of the flags -endpoint-cert CERT,KEY and -endpoint-ca CA, either
// which may be "", or nil if both are.
func TLSLine(certAndKey, ca string) ([]string, error) {
	line := []string{"tls"}
	if certAndKey != "" {
		line = append(line, strings.Split(certAndKey, ",")...)
		if len(line) != 3 {
			return nil, fmt.Errorf("-endpoint-cert %s: write two files with a comma, the certificate and its key", certAndKey)
		}
	}
	if ca != "" {
		line = append(line, ca)
	}
	if len(line) == 1 {
		return nil, nil
	}
	return line, nil
}

func (p *parser) readCA(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxCA+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxCA:
		return fmt.Errorf("%s has more than %d bytes", path, maxCA)
	case len(text) == 0:
		return errors.New(path + " is empty")
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return fmt.Errorf("%s: there is no certificate in PEM, such as -----BEGIN CERTIFICATE-----", path)
	}
	p.CA = string(text)
	return nil
}

// checkEndpoints checks how the endpoints are reached.
func (p *parser) checkEndpoints() error {
	endpoints, at := strings.Fields(p.Endpoint), p.given["endpoint"]
	for _, endpoint := range endpoints {
		if (p.Secret != "" || len(endpoints) > 1) && lookup.InClearText(endpoint) {
			if u, _ := lookup.ParseURL(endpoint); p.Secret == "" { // of the rest a part may be secret
				return at.errorf("endpoint: http://%s: http to several servers is for your own network: use https", u.Host())
			}
			return at.errorf("endpoint: http would send the API key in clear text: use https")
		}
	}
	if at, given := p.given["tls"]; given && len(endpoints) > 0 && !slices.ContainsFunc(endpoints, isHTTPS) {
		return at.errorf("tls has no effect: no endpoint begins with https://")
	}
	return nil
}

func isHTTPS(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Scheme == "https"
}

// KeyVariable is the environment variable with the API key.
const KeyVariable = "SAFEBROWSING_API_KEY"

// Credential is the name of the systemd credential with the API key, see LoadCredential= in
// systemd.exec(5). systemd puts it into the directory that $CREDENTIALS_DIRECTORY names.
const Credential = "safebrowsing.key"

// KeyOfProcess returns the API key that the process was started with: the one of the
// credential, else the one of the environment, else "". file holds the credential; it is ""
// if the key comes from elsewhere. A credential that is empty is none, so that a unit
// starts before there is a key (SetCredential= is its default).
func KeyOfProcess() (key, file string, err error) {
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		file = filepath.Join(dir, Credential)
		switch raw, err := os.ReadFile(file); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", file, fmt.Errorf("the API key in $CREDENTIALS_DIRECTORY: %w", err)
		default:
			if key := strings.TrimSpace(string(raw)); key != "" {
				return key, file, say.CheckKeyIn("the credential "+Credential, key)
			}
		}
	}
	key = strings.TrimSpace(os.Getenv(KeyVariable))
	return key, "", say.CheckKeyIn("$"+KeyVariable, key)
}
