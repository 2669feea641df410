package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
)

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
		Password: os.Getenv(relay.RedisPasswordVariable), Sentinels: os.Getenv(relay.SentinelPasswordVariable),
	}
	switch {
	case cfg.PasswordFile != "" && target.Password != "":
		return nil, errors.New("-redis has a password, and -redis-password-file is given: keep one of the two")
	case cfg.CAFile != "" && !target.TLS:
		return nil, errors.New("-redis-ca needs TLS: write rediss in place of redis in -redis")
	}
	return cfg, nil
}
