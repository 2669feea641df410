package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
)

const (
	// redisTimeout bounds the examination of a Redis.
	redisTimeout = 15 * time.Second
	// redisDeadline is how long one of its answers may take.
	redisDeadline = 2 * time.Second
	// lateList is the age of a list that no relay seems to update: servers let clients wait for
	// minutes or hours.
	lateList = 24 * time.Hour
)

// redisStates tells the first state of a connection.
type redisStates chan error

// Done implements sharing.Observer.
func (redisStates) Done(string, time.Duration, error) {}

// Dropped implements sharing.Observer.
func (redisStates) Dropped(string) {}

// State implements sharing.Observer.
func (s redisStates) State(err error) {
	select {
	case s <- err:
	default:
	}
}

type text = say.Text

// diagnosis is the result of one check.
type diagnosis say.Diagnosis

// examination is one run of the doctor.
type examination struct{ say.Doctor }

func (e *examination) tell(d diagnosis) { e.Tell(say.Diagnosis(d)) }

func doctor() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "examine the Redis or Valkey that relays share, or what a relay costs",
		Description: `Prints one line for each thing that must be right: version, memory, TLS, which relay
fetches lists, and how old the lists are. It writes one key, which expires.

   safebrowsing-relay doctor -redis rediss://redis.internal:6379

With -admin it says what a running relay has asked its server, what that costs a month
at this rate, and which ten prefixes were asked about most often today. A relay sees
prefixes and no names: safebrowsing expressions prints a name's prefixes, with which
its SHA-256 begins.

   safebrowsing-relay doctor -admin 127.0.0.1:8098

A relay itself is examined as its clients see it:

   safebrowsing doctor -endpoint http://127.0.0.1:8099 -api-key-file client.key

The JSON of a check is {"check","status","text","advice"}; status is ok, warning,
problem or skipped. The exit status is 1 if there is a problem; warnings leave it
at 0.`,
		Flags: append(redisFlags("examine"),
			&cli.StringFlag{Name: "admin", Usage: "the `ADDRESS` that a running relay has for -admin"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per line"}),
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return fmt.Errorf("doctor takes no argument such as %q, see safebrowsing-relay doctor -h", c.Args().First())
			}
			cfg, err := redisConfig(c)
			if err == nil && cfg == nil && !c.IsSet("admin") {
				err = errors.New("doctor needs -redis or -admin, see safebrowsing-relay doctor -h")
			}
			if err != nil {
				return err
			}
			e := new(examination)
			e.W, e.JSON = c.Root().Writer, c.Bool("json")
			if c.IsSet("admin") {
				e.costs(ctx, c.String("admin"))
			}
			if cfg == nil {
				return e.Sum()
			}
			return e.redis(ctx, cfg)
		},
	}
}

// redis examines the Redis that relays share.
func (e *examination) redis(ctx context.Context, cfg *sharing.Config) error {
	e.Secrets = []string{cfg.Password, cfg.Sentinels, cfg.Target.Password}
	states := make(redisStates, 1)
	cfg.Observer, cfg.Deadline, cfg.Prefix = states, redisDeadline, sharing.Prefix("doctor")
	client, err := sharing.Open(*cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	e.tell(redisTLS(cfg.Target))
	limited, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	select {
	case err = <-states:
	case <-limited.Done():
		err = limited.Err()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		e.tell(diagnosis{"redis", say.Problem, text(fmt.Sprintf("%s cannot be used: %v", cfg.Target, err)), text(sharing.Cure(err))})
		return e.Sum()
	}
	e.redisServer(limited, client, cfg.Target)
	e.fleets(limited, client, cfg.Target.Kind)
	return e.Sum()
}

// redisTLS says whether others can read along.
func redisTLS(t sharing.Target) diagnosis {
	switch {
	case t.TLS:
		return diagnosis{"tls", say.OK, "the connection to Redis uses TLS", ""}
	case t.InClear():
		return diagnosis{"tls", say.Warning, "the connection to Redis has no TLS: where it leaves this machine, the network can read and change what relays share", "write rediss instead of redis in -redis"}
	}
	return diagnosis{"tls", say.OK, "not used: Redis is on this machine", ""}
}

// redisServer examines the version and the memory.
func (e *examination) redisServer(ctx context.Context, client *sharing.Client, target sharing.Target) {
	v, err := client.Do(ctx, "examine", "INFO", nil)
	if err != nil {
		e.tell(diagnosis{"redis", say.Warning, text(fmt.Sprintf("%s can be used, but does not tell about itself: %v", target, err)), "give the user of Redis the right to run INFO"})
		return
	}
	info := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(string(v.Bytes()))); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			info[name] = value
		}
	}
	e.tell(redisVersion(target.String(), info))
	e.tell(redisMemory(info))
}

// redisVersion says whether relays can use a server.
func redisVersion(where string, info map[string]string) diagnosis {
	product, version, oldest := "Redis", info["redis_version"], [2]int{6, 2}
	if info["server_name"] == "valkey" {
		product, version, oldest = "Valkey", info["valkey_version"], [2]int{7, 2}
	}
	var found [2]int
	_, err := fmt.Sscanf(version, "%d.%d", &found[0], &found[1])
	d := diagnosis{"redis", say.OK, text(fmt.Sprintf("%s is %s %s and can be written", where, product, version)), ""}
	if err == nil && slices.Compare(found[:], oldest[:]) < 0 {
		d.Status, d.Advice = say.Problem, "upgrade it: relays need Redis 6.2 or Valkey 7.2"
	}
	return d
}

// redisMemory says whether Redis may drop what relays share.
func redisMemory(info map[string]string) diagnosis {
	used, _ := strconv.ParseUint(info["used_memory"], 10, 64)
	most, _ := strconv.ParseUint(info["maxmemory"], 10, 64)
	policy := info["maxmemory_policy"]
	if most == 0 {
		return diagnosis{"memory", say.OK, text(say.Size(used) + " are used, without a limit"), ""}
	}
	d := diagnosis{"memory", say.OK, text(fmt.Sprintf("%s of %s are used, maxmemory-policy is %s", say.Size(used), say.Size(most), policy)), ""}
	if policy != "noeviction" {
		d.Status, d.Advice = say.Warning, "set maxmemory-policy to noeviction: Redis may drop parts of lists, which relays then publish again"
	}
	return d
}

// fleets examines what relays share.
func (e *examination) fleets(ctx context.Context, client *sharing.Client, kind sharing.TargetKind) {
	if kind == sharing.Cluster {
		e.tell(diagnosis{"lease", say.Skipped, "a cluster is not searched for relays: see the metrics of a relay", ""})
		return
	}
	all, now, err := sharing.Fleets(ctx, client)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.tell(diagnosis{"lease", say.Skipped, text(fmt.Sprintf("this Redis has too many keys to look for relays within %s", redisTimeout)), ""})
	case err != nil:
		e.tell(diagnosis{"lease", say.Warning, text(fmt.Sprintf("what relays share cannot be read: %v", err)), text(sharing.Cure(err))})
	case len(all) == 0:
		e.tell(diagnosis{"lease", say.Warning, "no relay uses this Redis", "start safebrowsing-relay with the same -redis, and with -db"})
	default:
		for _, f := range all {
			e.fleet(f, now)
		}
	}
}

// fleet tells of the relays that share one server and one key. now is the time of Redis.
func (e *examination) fleet(f sharing.Fleet, now time.Time) {
	who := "relays of " + f.Asker
	if f.Newer != "" {
		e.tell(diagnosis{"format", say.Problem, text(fmt.Sprintf("%s share data of a newer format: %s", who, f.Newer)), "upgrade the relays of this version: they fetch nothing"})
		return
	}
	if f.Holder == "" && !f.Alive {
		e.tell(diagnosis{"lease", say.Warning, text(who + ": none has used this Redis for minutes"), "start them; or nothing if their key was replaced: what they left expires"})
		return
	}
	if f.Holder == "" {
		e.tell(diagnosis{"lease", say.Warning, text(who + ": none of them fetches lists"), "look at the logs of the relays: after the death of one another takes over within 40 seconds"})
	} else {
		e.tell(diagnosis{"lease", say.OK, text(fmt.Sprintf("%s: %s fetches lists, until %s unless it renews that", who, f.Holder, say.Time(now.Add(f.Left)))), ""})
	}
	for _, l := range f.Lists {
		e.tell(sharedList(who, l, now))
	}
}

// sharedList tells of one list.
func sharedList(who string, l sharing.SharedList, now time.Time) diagnosis {
	age := max(0, now.Sub(l.Received)).Round(time.Second)
	d := diagnosis{"lists", say.OK, text(fmt.Sprintf("%s: %s has %s, fetched %s ago", who, l.Name, say.Count(l.Entries, "entry", "entries"), age)), ""}
	switch {
	case l.Name == "":
		return diagnosis{"lists", say.Warning, text(who + ": the description of a list is damaged"), "nothing: the relay that fetches publishes it again"}
	case age > lateList:
		d.Status, d.Advice = say.Warning, "look at the log of the relay that fetches lists: it says why it does not get new ones"
	}
	return d
}

const (
	// adminTimeout bounds a question to a relay.
	adminTimeout = 5 * time.Second
	// maxCosts is the most bytes of its answer that are read.
	maxCosts = 1 << 16
)

// costs tells what the relay with this address of -admin has asked its server.
func (e *examination) costs(ctx context.Context, address string) {
	costs, err := costsOf(ctx, address)
	if err != nil {
		e.tell(diagnosis{"costs", say.Problem, text(fmt.Sprintf("the relay cannot be asked: %v", err)), "give the address that the relay has for -admin"})
		return
	}
	said, most := costs.Text(time.Now())
	e.tell(diagnosis{"costs", say.OK, text(said), ""})
	if most != "" {
		e.tell(diagnosis{"prefixes", say.OK, text(most), ""})
	}
}

// costsOf asks a relay.
func costsOf(ctx context.Context, address string) (costs relay.Costs, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/costs", nil)
	if err != nil {
		return costs, errors.New("it is no address")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return costs, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return costs, fmt.Errorf("http://%s/costs: status %d", address, answer.StatusCode)
	}
	return costs, json.NewDecoder(io.LimitReader(answer.Body, maxCosts)).Decode(&costs)
}
