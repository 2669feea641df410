// Command safebrowsing-relay is a Safe Browsing server for one's own network: one client of
// Google for many CoreDNS servers. Several relays act as one over Redis or Valkey.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
)

const relayHelp = `Fetches the lists once for a whole network and serves them to your CoreDNS servers.
To Google all of them are one polite client: one key, one schedule, one cache.

   SAFEBROWSING_API_KEY=... safebrowsing-relay -db /var/lib/safebrowsing-relay
   safebrowsing-relay -db /var/lib/safebrowsing-relay -api-key-file /etc/safebrowsing.key -listen 192.0.2.1:8099 -client-key-file keys.txt
   Corefile of each server:
   safebrowsing {
       endpoint http://192.0.2.1:8099
       api_key_file FILE # with one of the keys in keys.txt
   }

The relay speaks v5 to its clients, whatever -protocol it speaks to its server. It
answers confirmations from its cache. A prefix that is in none of its lists is no
threat: it asks about such a prefix with -realtime only.

Flags with the names of properties of a Corefile mean the same. A relay and a CoreDNS must
not fetch lists with the same key from two folders.

Other machines can reach the relay if -listen says so. Then it needs TLS (-tls-cert,
-tls-key) or keys of clients (-client-key-file), better both. The file has one key on
each line, so that an old and a new one can be valid for a time; clients have theirs
in api_key. With -tls-client-ca each client needs a certificate. The relay reads these
files again when they change.

With -redis, relays act as one over Redis 6.2 or Valkey 7.2, or later ones: one of them at
a time fetches lists, and all share lists, clocks, answers and the limits of clients. Each
has its own folder, and continues with it while Redis is away.

safebrowsing-relay doctor examines that Redis.

On the address of -admin are /metrics, /costs, /healthz and /readyz. The relay ends with
SIGTERM or SIGINT, after the requests that are under way.`

// Defaults of the relay.
const (
	relayListen = "127.0.0.1:8099"
	relayAdmin  = "127.0.0.1:8098"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run executes a command line and returns the exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := command()
	// A key may be in the wrong place of a Corefile or of the command line.
	root.Reader, root.Writer, root.ErrWriter = in, say.MaskedWriter{W: out}, say.MaskedWriter{W: errOut}
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // else the library exits
	for _, c := range append([]*cli.Command{root}, root.Commands...) {
		c.OnUsageError = func(_ context.Context, c *cli.Command, err error, _ bool) error {
			return say.UsageError(c.FullName(), err)
		}
	}
	return say.Exit(root.ErrWriter, root.Name, root.Run(ctx, args))
}

func command() *cli.Command {
	root := &cli.Command{
		Name:        "safebrowsing-relay",
		Usage:       "serve lists and confirmations to many CoreDNS servers, as one client of Google",
		Description: relayHelp,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "listen", Usage: "`ADDRESS` for clients", Value: relayListen},
			&cli.StringFlag{Name: "admin", Usage: "`ADDRESS` for metrics and health, or off", Value: relayAdmin},
			&cli.StringFlag{Name: "db", Usage: "the `FOLDER` for the lists, or off (default: $STATE_DIRECTORY, else coredns-safebrowsing in your cache folder)"},
			&cli.StringFlag{Name: "corefile", Hidden: true},
			&cli.StringFlag{Name: "api-key-file", Usage: "read the API key from `FILE`, again when it changes (default: the systemd credential " + config.Credential + ", else $" + config.KeyVariable + ")"},
			&cli.StringFlag{Name: "protocol", Usage: "the `PROTOCOL` of the server: " + strings.Join(config.Protocols, ", "), Value: config.Protocols[0]},
			&cli.StringFlag{Name: "endpoint", Usage: "the `URL` of the server, or several separated by commas (default: Google's)"},
			&cli.StringFlag{Name: "endpoint-ca", Usage: "trust only the authorities in `FILE` for the server"},
			&cli.StringFlag{Name: "endpoint-cert", Usage: "the certificate for the server and its key, two `FILES` with a comma"},
			&cli.StringFlag{Name: "token-file", Usage: "read an access token for Web Risk from `FILE`, instead of an API key"},
			&cli.StringFlag{Name: "resolver", Usage: "the `ADDRESSES` of name servers for the names of the server and of Redis, separated by commas"},
			&cli.StringFlag{Name: "lists", Usage: "the `NAMES` of lists, separated by commas (default: the plugin's default)"},
			&cli.StringFlag{Name: "max-entries", Usage: "the most entries of a list, a `COUNT`"},
			&cli.StringFlag{Name: "budget", Usage: "the most searches a day, `COUNT`[,SHARE%] or unlimited, as in a Corefile"},
			&cli.StringFlag{Name: "cache", Usage: "the most answers to keep, a `COUNT`, or a size of memory such as 1GiB"},
			&cli.BoolFlag{Name: "realtime", Usage: "ask the server about prefixes in no list, too, for clients in mode realtime"},
			&cli.StringFlag{Name: "tls-cert", Usage: "serve https with the certificate in `FILE`"},
			&cli.StringFlag{Name: "tls-key", Usage: "the `FILE` with the key of the certificate"},
			&cli.StringFlag{Name: "tls-client-ca", Usage: "serve only clients with a certificate that a CA in `FILE` has signed"},
			&cli.StringFlag{Name: "client-key-file", Usage: "serve only clients that send one of the keys in `FILE`"},
			&cli.BoolFlag{Name: "insecure-listen", Usage: "let all other machines use the relay, without TLS and keys"},
			&cli.FloatFlag{Name: "rate", Usage: "the most searches of one client, such as a CoreDNS, in a second, a `NUMBER`; 0 for no limit", Value: relay.DefaultRate},
			&cli.FloatFlag{Name: "ema", Usage: "instead of -rate: refuse searches of one client that come faster than it used to ask, by a `NUMBER` of deviations"},
			&cli.FloatFlag{Name: "burst", Usage: "the `NUMBER` of searches that one client may cause at once", Value: relay.DefaultBurst},
			&cli.IntFlag{Name: "connections", Usage: "the most connections of clients at once, a `COUNT`", Value: relay.DefaultConnections},
			&cli.DurationFlag{Name: "lameduck", Usage: "serve clients for a `TIME` such as 5s after SIGTERM, while /readyz is 503"},
			&cli.BoolFlag{Name: "version", Usage: "print the version"},
			&cli.BoolFlag{Name: "insecure-redis", Usage: "use a Redis on another machine without TLS: who is on the way can read and change what relays share"},
		}, redisFlags("act as one with other relays over")...),
		Commands: []*cli.Command{doctor()},
		Action: func(ctx context.Context, c *cli.Command) error {
			switch {
			case c.Bool("version"):
				_, err := fmt.Fprintf(c.Root().Writer, "safebrowsing %s, %s %s/%s\n", say.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return err
			case c.NArg() > 0:
				return fmt.Errorf("safebrowsing-relay takes no argument such as %q, see safebrowsing-relay -h", c.Args().First())
			case c.IsSet("corefile"):
				return errors.New("a relay reads no Corefile: what the stanza says about the server, the key and the lists are flags of the same names, see safebrowsing-relay -h")
			}
			return runRelay(ctx, c)
		},
	}
	for _, flag := range root.Flags { // they are not for doctor
		switch f := flag.(type) {
		case *cli.StringFlag:
			f.Local = true
		case *cli.BoolFlag:
			f.Local = true
		case *cli.IntFlag:
			f.Local = true
		case *cli.FloatFlag:
			f.Local = true
		case *cli.DurationFlag:
			f.Local = true
		}
	}
	return root
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
	return relay.Run(ctx, cfg, func(listen, admin net.Addr) {
		fmt.Fprintf(c.Root().Writer, "Corefile of each server:\n\n%s\n", corefileOfClients(cfg, cfg.URL(listen)))
		if admin != nil {
			fmt.Fprintf(c.Root().Writer, "Metrics: http://%s/metrics\n", admin)
		}
	})
}

// corefileOfClients returns the stanza of a client of the relay at a URL.
func corefileOfClients(cfg relay.Config, url string) string {
	lines := []string{"safebrowsing {", "    endpoint " + url}
	if cfg.ClientKeyFile != "" {
		lines = append(lines, "    api_key_file FILE # with one of the keys in "+cfg.ClientKeyFile)
	}
	if cfg.ClientCAFile != "" {
		lines = append(lines, "    tls CERT KEY # signed by an authority in "+cfg.ClientCAFile)
	}
	return strings.Join(append(lines, "}", ""), "\n")
}

// relayConfig reads the flags.
func relayConfig(c *cli.Command) (relay.Config, error) {
	stanza, err := stanzaOf(c)
	if err != nil {
		return relay.Config{}, err
	}
	cfg := relay.Config{
		Settings: engine.Settings(stanza.Engine), Key: stanza.Secret,
		Listen: c.String("listen"), Admin: c.String("admin"), Connections: c.Int("connections"), Lameduck: c.Duration("lameduck"), Insecure: c.Bool("insecure-listen"),
		CertFile: c.String("tls-cert"), CertKeyFile: c.String("tls-key"), ClientCAFile: c.String("tls-client-ca"), ClientKeyFile: c.String("client-key-file"),
		InsecureRedis: c.Bool("insecure-redis"), Rate: c.Float("rate"), Burst: c.Float("burst"), EMA: c.Float("ema"),
	}
	if cfg.Admin == "off" {
		cfg.Admin = ""
	}
	if cfg.Connections < 1 {
		return cfg, errors.New("-connections must be at least 1")
	}
	cfg.Redis, err = redisConfig(c)
	return cfg, err
}

// stanzaOf returns what the flags say of the engine.
func stanzaOf(c *cli.Command) (config.Config, error) {
	if err := needKey(c); err != nil {
		return config.Config{}, err
	}
	folder := c.String("db")
	if !c.IsSet("db") {
		var err error
		if folder, err = config.DefaultFolder(); err != nil {
			return config.Config{}, fmt.Errorf("there is no default folder, use -db: %w", err)
		}
	}
	cfg, err := config.ParseFlags(c, folder)
	if err == nil {
		err = engine.Settings(cfg.Engine).Check(cfg.Secret, cfg.Online, &cfg)
	}
	for _, warning := range cfg.Warnings {
		log.Printf("[WARNING] %s", warning)
	}
	return cfg, err
}

// needKey returns an error if neither a flag nor the process has a key, and the server is
// Google's.
func needKey(c *cli.Command) error {
	if c.IsSet("api-key-file") || c.IsSet("token-file") || !(engine.Settings{Endpoint: c.String("endpoint")}).Google() {
		return nil
	}
	key, _, err := config.KeyOfProcess()
	if key == "" && err == nil {
		err = errors.New("no API key: set -api-key-file or $" + config.KeyVariable + ", or the systemd credential " + config.Credential + ", or -endpoint for a server of your own")
	}
	return err
}

// redisFlags are the flags of a Redis that relays share. use says what it is for.
func redisFlags(use string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "redis", Usage: use + " the Redis or Valkey at `URL`: redis, rediss, redis+sentinel or redis+cluster"},
		&cli.StringFlag{Name: "redis-password-file", Usage: "read the password of Redis from `FILE`, again for each connection (default: $" + relay.RedisPasswordVariable + ")"},
		&cli.StringFlag{Name: "redis-ca", Usage: "believe certificates of Redis that a CA in `FILE` has signed (default: the system's)"},
	}
}

// redisConfig returns the Redis that relays share, or nil if there is none.
func redisConfig(c *cli.Command) (*sharing.Config, error) {
	url := c.String("redis")
	if url == "" {
		for _, flag := range []string{"redis-password-file", "redis-ca"} {
			if c.IsSet(flag) {
				return nil, fmt.Errorf("-%s is given without -redis: give the URL of Redis too", flag)
			}
		}
		return nil, nil
	}
	target, err := sharing.Parse(url)
	if err != nil {
		return nil, err
	}
	cfg := &sharing.Config{
		Target: target, PasswordFile: c.String("redis-password-file"), CAFile: c.String("redis-ca"),
		Password:  strings.TrimSpace(os.Getenv(relay.RedisPasswordVariable)), // the files of secrets are trimmed, too
		Sentinels: strings.TrimSpace(os.Getenv(relay.SentinelPasswordVariable)),
	}
	switch {
	case cfg.PasswordFile != "" && target.Password != "":
		return nil, errors.New("-redis has a password, and -redis-password-file is given: keep one of the two")
	case cfg.CAFile != "" && !target.TLS:
		return nil, errors.New("-redis-ca needs TLS: write rediss instead of redis in -redis")
	}
	return cfg, nil
}
