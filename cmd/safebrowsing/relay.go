package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
)

const relayHelp = `Fetches the lists once for a whole network and serves them to your CoreDNS servers.
To Google all of them are one polite client: one key, one schedule, one cache.

   SAFEBROWSING_API_KEY=... safebrowsing relay -db /var/lib/safebrowsing-relay
   safebrowsing relay -db /var/lib/safebrowsing-relay -api-key-file /etc/safebrowsing.key -listen 192.0.2.1:8099 -client-key-file keys.txt
   Corefile of each server: safebrowsing { endpoint http://192.0.2.1:8099 }

The relay speaks v5 to its clients, whatever -protocol it speaks to its server. It
answers confirmations from its cache. A prefix that is in none of its lists is no
threat: it asks about such a prefix with -realtime only.

With -corefile, server, key, lists and folder are those of the plugin in that file;
-db names another folder. A relay and a CoreDNS must not fetch lists with the same
key from two folders.

Other machines can reach the relay if -listen says so. Then it needs TLS (-tls-cert,
-tls-key) or keys of clients (-client-key-file), better both. The file has one key on
each line, so that an old and a new one can be valid for a time; clients have theirs
in api_key. With -tls-client-ca each client needs a certificate. The relay reads these
files again when they change.

On the address of -admin are /metrics, /healthz and /readyz. The relay ends with
SIGTERM or SIGINT, after the requests that are under way.`

// Defaults of the relay.
const (
	relayListen = "127.0.0.1:8099"
	relayAdmin  = "127.0.0.1:8098"
)

func relayCommand() *cli.Command {
	return &cli.Command{
		Name:        "relay",
		Usage:       "serve lists and confirmations to many CoreDNS servers, as one client of Google",
		Description: relayHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Usage: "`ADDRESS` for clients", Value: relayListen},
			&cli.StringFlag{Name: "admin", Usage: "`ADDRESS` for metrics and health, or off", Value: relayAdmin},
			folderFlag("the `FOLDER` for the lists"),
			&cli.StringFlag{Name: "corefile", Usage: "take server, key and lists from this `FILE`"},
			&cli.StringFlag{Name: "api-key-file", Usage: "read the API key from `FILE`, again when it changes (default: $" + config.KeyVariable + ")"},
			&cli.StringFlag{Name: "protocol", Usage: "the `PROTOCOL` of the server: " + dialectNames(), Value: protocol.DialectV5.Name},
			&cli.StringFlag{Name: "endpoint", Usage: "the `URL` of the server (default: Google's)"},
			&cli.StringFlag{Name: "lists", Usage: "the `NAMES` of lists, separated by commas (default: the plugin's default)"},
			&cli.StringFlag{Name: "budget", Usage: "the most searches a day, a `COUNT` or unlimited"},
			&cli.BoolFlag{Name: "realtime", Usage: "ask the server about prefixes in no list, too, for clients in mode realtime"},
			&cli.StringFlag{Name: "tls-cert", Usage: "serve https with the certificate in `FILE`"},
			&cli.StringFlag{Name: "tls-key", Usage: "the `FILE` with the key of the certificate"},
			&cli.StringFlag{Name: "tls-client-ca", Usage: "serve only clients with a certificate that a CA in `FILE` has signed"},
			&cli.StringFlag{Name: "client-key-file", Usage: "serve only clients that send one of the keys in `FILE`"},
			&cli.BoolFlag{Name: "insecure-listen", Usage: "let all other machines use the relay, without TLS and keys"},
			&cli.FloatFlag{Name: "rate", Usage: "the most searches of one client, such as a CoreDNS, in a second, a `NUMBER`; 0 for no limit", Value: relay.DefaultRate},
			&cli.FloatFlag{Name: "burst", Usage: "the `NUMBER` of searches that one client may cause at once", Value: relay.DefaultBurst},
			&cli.IntFlag{Name: "connections", Usage: "the most connections of clients at once, a `COUNT`", Value: relay.DefaultConnections},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return fmt.Errorf("relay takes no argument such as %q, see safebrowsing relay -h", c.Args().First())
			}
			return runRelay(ctx, c)
		},
	}
}

// runRelay runs a relay until ctx ends. The log goes to standard error, with its INFO
// lines: they are what a service tells its operator.
func runRelay(ctx context.Context, c *cli.Command) error {
	before := log.Writer()
	log.SetOutput(c.Root().ErrWriter)
	defer log.SetOutput(before)
	cfg, err := relayConfig(c)
	if err != nil {
		return err
	}
	out := newConsole(c)
	return relay.Run(ctx, cfg, func(listen, admin net.Addr) {
		out.printf("Corefile of each server: safebrowsing { endpoint %s }\n", cfg.URL(listen))
		if admin != nil {
			out.printf("Metrics: http://%s/metrics\n", admin)
		}
	})
}

// relayConfig reads the flags.
func relayConfig(c *cli.Command) (relay.Config, error) {
	engine, err := relayEngine(c)
	if err != nil {
		return relay.Config{}, err
	}
	cfg := relay.Config{
		Settings: engine.Settings, Key: engine.Secret,
		Listen: c.String("listen"), Admin: c.String("admin"), Connections: c.Int("connections"), Insecure: c.Bool("insecure-listen"),
		CertFile: c.String("tls-cert"), CertKeyFile: c.String("tls-key"), ClientCAFile: c.String("tls-client-ca"), ClientKeyFile: c.String("client-key-file"),
		Rate: c.Float("rate"), Burst: c.Float("burst"),
	}
	if cfg.Admin == "off" {
		cfg.Admin = ""
	}
	if cfg.Connections < 1 {
		return cfg, errors.New("-connections must be at least 1")
	}
	return cfg, nil
}

// engineFlags are the flags that a Corefile stands for.
var engineFlags = []string{"api-key-file", "protocol", "endpoint", "lists", "budget", "realtime"}

// relayEngine returns what the relay fetches, from a Corefile or from flags.
func relayEngine(c *cli.Command) (config.Config, error) {
	path := c.String("corefile")
	if path == "" {
		return relayStanza(c)
	}
	for _, flag := range engineFlags {
		if c.IsSet(flag) {
			return config.Config{}, fmt.Errorf("-corefile and -%s are both given: keep one of the two", flag)
		}
	}
	blocks, err := readCorefile(path)
	if err != nil {
		return config.Config{}, err
	}
	defer closeBlocks(blocks)
	only, err := onlyEngine(path, blocks)
	if err != nil {
		return config.Config{}, err
	}
	cfg := only.cfg
	if c.IsSet("db") {
		cfg.DB = c.String("db")
	}
	return cfg, nil
}

// relayStanza has the parser of the Corefile read the flags, so that both allow the same.
func relayStanza(c *cli.Command) (config.Config, error) {
	if !c.IsSet("api-key-file") && os.Getenv(config.KeyVariable) == "" && protocol.IsGoogle(c.String("endpoint")) {
		return config.Config{}, errors.New("no API key: set -api-key-file or $" + config.KeyVariable + ", or -endpoint for a server of your own")
	}
	lines, err := stanzaLines(c)
	if err != nil {
		return config.Config{}, err
	}
	var tokens []caddyfile.Token
	for i, line := range lines {
		for _, word := range line {
			tokens = append(tokens, caddyfile.Token{File: "flags", Line: i + 1, Text: word})
		}
	}
	controller := &caddy.Controller{Dispenser: caddyfile.NewDispenserTokens("flags", tokens), ServerBlockKeys: []string{"."}}
	cfg, err := config.Parse(controller, "")
	if err != nil {
		return config.Config{}, asFlags(err)
	}
	for _, warning := range cfg.Warnings {
		log.Printf("[WARNING] %s", asFlags(errors.New(warning)))
	}
	return cfg, nil
}

// stanzaLines returns the stanza that says the same as the flags.
func stanzaLines(c *cli.Command) ([][]string, error) {
	folder, err := folderOf(c)
	if err != nil {
		return nil, err
	}
	lines := [][]string{{config.Plugin, "{"}, {"db", folder}, {"protocol", c.String("protocol")}}
	for _, flag := range []string{"api-key-file", "endpoint"} {
		if c.IsSet(flag) {
			lines = append(lines, []string{strings.ReplaceAll(flag, "-", "_"), c.String(flag)})
		}
	}
	if c.IsSet("lists") {
		lines = append(lines, append([]string{"lists"}, strings.Split(c.String("lists"), ",")...))
	}
	switch budget := c.String("budget"); budget {
	case "":
	case "unlimited":
		lines = append(lines, []string{"budget", budget})
	default: // the clients are servers, and each may need more than a part
		lines = append(lines, []string{"budget", budget, "100%"})
	}
	if c.Bool("realtime") {
		lines = append(lines, []string{"mode", "realtime"})
	}
	return append(lines, []string{"}"}), nil
}

var stanzaPlace = regexp.MustCompile(`^(flags:\d+:? *(- )?)?(Error during parsing: )?`)

// asFlags takes the place in the stanza out of a text of the parser: there is no file that
// the operator could open.
func asFlags(err error) error {
	return errors.New(stanzaPlace.ReplaceAllString(err.Error(), ""))
}
