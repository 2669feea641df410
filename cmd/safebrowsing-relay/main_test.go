package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coredns/caddy"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// startRelay runs the relay until the test ends, and returns the endpoint and the URL for operators that it prints, and its log.
func startRelay(t *testing.T, args ...string) (endpoint, admin string, errOut *testkit.Output) {
	t.Helper()
	out, errOut := new(testkit.Output), new(testkit.Output)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"safebrowsing-relay", "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0"}, args...), strings.NewReader(""), out, errOut)
	}()
	t.Cleanup(func() {
		cancel()
		testkit.Equal(t, fmt.Sprint("status at the end: ", errOut), <-ended, 0)
	})
	said := func() []string {
		return regexp.MustCompile(`(?s)endpoint (\S+).*Metrics: (http://127\.0\.0\.1:\d+)`).FindStringSubmatch(out.String())
	}
	testkit.Until(t, "the start of the relay", func() bool { return said() != nil })
	return said()[1], said()[2], errOut
}

func TestTheRelayServesItsFolder(t *testing.T) {
	w := filled(t)
	endpoint, _, errOut := startRelay(t, "-db", w.dir, "-endpoint", w.endpoint, "-lists", "se-4b,mw-4b,uws-4b", "-budget", "1000")
	client, err := protocol.NewV5(protocol.Config{Endpoint: endpoint, UserAgent: "test/1"})
	testkit.Must(t, err)
	defer client.Close()
	evil := lookup.HashExpression("evil.example/")
	var answer lookup.Answer
	testkit.Until(t, "an answer", func() bool {
		answer, err = client.Search(t.Context(), []lookup.Prefix{evil.Prefix(4)})
		return err == nil
	})
	testkit.Equal(t, "threats", len(answer.Threats), 1)
	testkit.Equal(t, "threat", answer.Threats[0].Hash, evil)
	lists, err := client.Lists(t.Context())
	testkit.Must(t, err)
	testkit.Equal(t, "lists", len(lists), 3)
	testkit.Equal(t, "requests for lists, for the first update", len(w.Requests("update")), 1)
	for _, line := range []string{"Safe Browsing v5 is on", "The relay serves lists se-4b, mw-4b, uws-4b on 127.0.0.1:"} {
		testkit.Until(t, line, func() bool { return strings.Contains(errOut.String(), line) })
	}
}

func TestTheRelayTakesTheKeyOfACredential(t *testing.T) {
	dir := t.TempDir()
	file := testkit.Write(t, dir, config.Credential, "FROMCRED\n")
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	t.Setenv(config.KeyVariable, "FROMENV")
	cfg := relayConfigOf(t, "-db", t.TempDir())
	testkit.Equal(t, "key and file", [2]string{string(cfg.Key), cfg.Settings.KeyFile}, [2]string{"FROMCRED", file})
}

func TestMisuseOfTheRelay(t *testing.T) {
	w := newWorld(t)
	none := filepath.Join(t.TempDir(), "none")
	for args, want := range map[string]string{
		"x":                                        `no argument such as "x"`,
		"-db " + none:                              "no API key: set -api-key-file or $" + config.KeyVariable,
		"-corefile x":                              "a relay reads no Corefile",
		"doctor x":                                 `no argument such as "x"`,
		"doctor":                                   "doctor needs -redis or -admin",
		"doctor -redis redis://a -db x":            "not defined: -db",
		"doctor -redis redis://a -realtime":        "not defined: -realtime", // as all flags of the relay
		"doctor -redis redis://a -rate 1":          "not defined: -rate",
		"doctor -redis redis://a -connections 1":   "not defined: -connections",
		"doctor -redis redis://a -lameduck 1s":     "not defined: -lameduck",
		"doctor -redis redis://127.0.0.1 -offline": "-offline",
		"doctor -redis-ca ca.pem":                  "-redis-ca is given without -redis",
		"doctor -redis http://127.0.0.1":           "must begin with redis://",
		"-db " + none + " -endpoint ENDPOINT -lists se-4c":                                          `safebrowsing-relay: lists: "se-4c" is not the name of a list: did you mean se-4b?`,
		"-db " + none + " -endpoint ENDPOINT -protocol v6":                                          `"v6" is not a protocol`,
		"-db " + none + " -endpoint ENDPOINT -protocol webrisk":                                     "each search costs money: add budget COUNT",
		"-db " + none + " -endpoint ENDPOINT -budget x":                                             "budget",
		"-db " + none + " -endpoint ENDPOINT -protocol webrisk -budget 5 -realtime":                 "protocol webrisk has no mode realtime",
		"-db " + none + " -api-key-file " + none:                                                    "no such file",
		"-db " + none + " -endpoint ENDPOINT -listen 0.0.0.0:0":                                     "can be reached by other machines",
		"-db " + none + " -endpoint ENDPOINT -listen 127.0.0.1":                                     "missing port",
		"-db " + none + " -endpoint ENDPOINT -listen 127.0.0.1:0 -client-key-file " + none:          "no such file",
		"-db " + none + " -endpoint ENDPOINT -tls-cert x":                                           "give both -tls-cert and -tls-key",
		"-db " + none + " -endpoint ENDPOINT -connections 0":                                        "-connections must be at least 1",
		"-db " + none + " -endpoint ENDPOINT -rate 1 -burst 0":                                      "the burst at least 1",
		"-db " + none + " -endpoint http://192.0.2.1:1 -api-key-file go.none":                       "no such file",
		"-db " + none + " -endpoint ENDPOINT -redis cache:6379":                                     "must begin with redis://",
		"-db " + none + " -endpoint ENDPOINT -redis-ca x":                                           "-redis-ca is given without -redis",
		"-db " + none + " -endpoint ENDPOINT -redis redis://a -redis-ca x":                          "-redis-ca needs TLS",
		"-db " + none + " -endpoint ENDPOINT -redis rediss://a -redis-ca " + none:                   "no such file",
		"-db " + none + " -endpoint ENDPOINT -redis redis://a -redis-password-file " + none:         "may be on another machine",
		"-endpoint ENDPOINT -redis redis://a -insecure-redis -redis-password-file " + none:          "no such file",
		"-endpoint ENDPOINT -redis redis+cluster://127.0.0.1,192.0.2.1":                             "-insecure-redis uses it in clear text",
		"-db " + none + " -endpoint ENDPOINT -redis redis://:s3cret@a -redis-password-file " + none: "keep one of the two",
	} {
		command := []string{"-admin", "off", "-listen", "127.0.0.1:0"}
		if strings.HasPrefix(args, "doctor") {
			command = nil
		}
		status, _, errOut := invoke(t, append(command, strings.Fields(strings.ReplaceAll(args, "ENDPOINT", w.endpoint))...)...)
		testkit.Equal(t, "status of "+args, status, 2)
		testkit.Equal(t, "lines of "+args, strings.Count(errOut, "\n"), 1)
		testkit.WantParts(t, errOut, want)
	}
	_, err := os.Stat(none)
	testkit.Is(t, "a misuse makes no folder", err, os.ErrNotExist)
}

// The password of Redis comes from a file or from the environment, and the relay tells it to Redis only.
func TestTheRelayFindsThePasswordOfRedis(t *testing.T) {
	s := testkit.StartRedis(t, "--requirepass", "s3cret")
	s.Password = "s3cret"
	key := testkit.Write(t, t.TempDir(), "password", "s3cret\n")
	for _, tt := range []struct {
		name, variable string
		args           []string
	}{
		{"a file", "", []string{"-redis", s.URL(), "-redis-password-file", key}},
		{"the environment", "s3cret", []string{"-redis", s.URL()}},
		{"the file comes first", "wr0ng", []string{"-redis", s.URL(), "-redis-password-file", key}},
		{"the URL", "", []string{"-redis", strings.Replace(s.URL(), "//", "//:s3cret@", 1)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.Do("FLUSHALL")
			t.Setenv(relay.RedisPasswordVariable, tt.variable)
			w := filled(t)
			_, _, errOut := startRelay(t, append([]string{"-db", w.dir, "-endpoint", w.endpoint, "-lists", "se-4b,mw-4b,uws-4b"}, tt.args...)...)
			// A relay with a wrong password writes nothing. On a busy machine Redis may be too slow
			// for requests of clients, and then no line says that they share it.
			testkit.Until(t, "what the relay writes", func() bool { return s.Do("DBSIZE") != ":0" })
			testkit.WantNone(t, errOut.String(), "s3cret")
			testkit.Equal(t, errOut.String(), strings.Contains(errOut.String(), "in the list of processes"), tt.name == "the URL")
		})
	}
}

// A Secret of Kubernetes that was made of a file has the end of its line.
func TestThePasswordsOfRedisInTheEnvironmentAreTrimmed(t *testing.T) {
	t.Setenv(relay.RedisPasswordVariable, "s3cret\n")
	t.Setenv(relay.SentinelPasswordVariable, "s3ntinel\r\n")
	w := newWorld(t)
	cfg := relayConfigOf(t, "-db", w.dir, "-endpoint", w.endpoint, "-redis", "rediss://cache.example").Redis
	testkit.Equal(t, "passwords", [2]string{string(cfg.Password), string(cfg.Sentinels)}, [2]string{"s3cret", "s3ntinel"})
}

// The service has started when the relay listens, with lists or without.
func TestTheServiceManagerOfTheRelayIsTold(t *testing.T) {
	w := newWorld(t)
	socket := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	manager, err := net.ListenUnixgram("unixgram", socket)
	testkit.Must(t, err)
	t.Cleanup(func() { // after the relay has ended
		defer manager.Close()
		testkit.Equal(t, "told at the end", heard(t, manager), "STOPPING=1")
	})
	t.Setenv("NOTIFY_SOCKET", socket.Name)
	endpoint, _, _ := startRelay(t, "-db", t.TempDir(), "-endpoint", w.endpoint, "-lists", "se-4b")
	testkit.Equal(t, "told", heard(t, manager), "READY=1\nSTATUS=The relay serves lists se-4b on "+strings.TrimPrefix(endpoint, "http://")+" (http)")
}

// heard returns the next message to a service manager.
func heard(t *testing.T, manager *net.UnixConn) string {
	t.Helper()
	buffer := make([]byte, 1000)
	manager.SetReadDeadline(time.Now().Add(time.Minute))
	n, err := manager.Read(buffer)
	testkit.Must(t, err)
	return string(buffer[:n])
}

// What the relay prints can be copied: the parser wants braces and properties on lines of their own.
func TestTheRelayPrintsAStanzaThatThePluginTakes(t *testing.T) {
	key := testkit.Write(t, t.TempDir(), "key", "KEYOFONECLIENT\n")
	for name, cfg := range map[string]relay.Config{"open": {}, "with keys": {ClientKeyFile: "keys.txt"}} {
		text := corefileOfClients(cfg, "https://192.168.1.2:8099")
		testkit.Equal(t, name+": "+text, strings.Contains(text, "api_key_file FILE # with one of the keys in keys.txt"), cfg.ClientKeyFile != "")
		c := caddy.NewTestController("dns", strings.ReplaceAll(text, " FILE ", " "+key+" "))
		c.ServerBlockKeys = []string{"."}
		parsed, err := config.Parse(c, "")
		testkit.Must(t, err)
		testkit.Equal(t, name, parsed.Endpoint, "https://192.168.1.2:8099")
	}
}

func TestCommandsOfTheDocuments(t *testing.T) {
	line := regexp.MustCompile("(?m)(?:^|`|/usr/bin/)safebrowsing-relay ((?:-|doctor )[^`#\n]*)")
	found := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*/*.md"} {
		documents, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
		testkit.Must(t, err)
		for _, name := range documents {
			for _, m := range line.FindAllStringSubmatch(testkit.Read(t, name), -1) {
				c, words := command(), strings.Fields(m[1])
				if words[0] == "doctor" {
					c = c.Command("doctor")
				}
				for _, word := range words {
					flag := strings.TrimLeft(word, "-")
					known := word == flag || slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), flag) })
					testkit.Equal(t, name+": safebrowsing-relay "+m[1]+": there is a flag "+word, known, true)
				}
				found++
			}
		}
	}
	testkit.Between(t, "command lines", found, 6, 1000)
}

// It starts with its flags, listens at the ports of its container, and answers its probes and a client with a key.
func TestTheRelayOfTheManifestsWorks(t *testing.T) {
	_, text, _ := strings.Cut(testkit.Read(t, "../../deploy/kubernetes/relay.yaml"), "kind: Deployment\n")
	text, _, _ = strings.Cut(text, "\n---\n")
	var d appsv1.Deployment
	testkit.Must(t, yaml.UnmarshalStrict([]byte(text), &d))
	c := d.Spec.Template.Spec.Containers[0]
	w := filled(t)
	w.SetKey("GOOGLE")
	dir := t.TempDir()
	replacer := strings.NewReplacer("/var/lib/safebrowsing", w.dir, "-lameduck=5s", "-lameduck=1ms",
		"/etc/safebrowsing/google/safebrowsing.key", testkit.Write(t, dir, "google", "GOOGLE\n"),
		"/etc/safebrowsing/clients/keys", testkit.Write(t, dir, "keys", "CLIENT\n"))
	testkit.Equal(t, "command", c.Command, []string{"/safebrowsing-relay"})
	args := []string{"-endpoint", w.endpoint}
	for _, arg := range c.Args {
		args = append(args, replacer.Replace(arg))
	}
	cfg := relayConfigOf(t, args...)
	testkit.Equal(t, "listens for clients", cfg.Listen, portOf(t, c, "clients"))
	testkit.Equal(t, "listens for operators", cfg.Admin, portOf(t, c, "admin"))
	url, admin, _ := startRelay(t, append(args, "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0")...)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		portOf(t, c, probe.HTTPGet.Port.StrVal)
		testkit.WantOK(t, admin+probe.HTTPGet.Path)
	}
	testkit.WantOK(t, url+"/v5/hashLists?key=CLIENT")
	testkit.WantParts(t, testkit.Body(t, url+"/v5/hashLists?key=GOOGLE"), "this relay needs a key")
}

// portOf returns a port of a container, after a colon.
func portOf(t *testing.T, c corev1.Container, name string) string {
	t.Helper()
	i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("the container has no port %s", name)
	}
	return fmt.Sprintf(":%d", c.Ports[i].ContainerPort)
}
