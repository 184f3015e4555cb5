package netconn

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/internal/core/retry"
)

const modulePath = "github.com/ottla/ottla"

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

func (c *Config) clientID() string              { return orDefault(c.ClientID, "ottla") }
func (c *Config) softwareName() string          { return orDefault(c.SoftwareName, "ottla") }
func (c *Config) dialTimeout() time.Duration    { return orDefault(c.DialTimeout, 10*time.Second) }
func (c *Config) requestTimeout() time.Duration { return orDefault(c.RequestTimeout, 30*time.Second) }
func (c *Config) idleTimeout() time.Duration    { return orDefault(c.IdleTimeout, 3*time.Minute) }
func (c *Config) maxResponse() int              { return orDefault(c.MaxResponseBytes, 100<<20) }
func (c *Config) backoff() retry.Backoff        { return orDefault(c.ReconnectBackoff, retry.Reconnect()) }

// softwareVersion is the version of this module as the program was built with.
func (c *Config) softwareVersion() string {
	if c.SoftwareVersion != "" {
		return c.SoftwareVersion
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknownVersion
	}
	return moduleVersion(info)
}

const unknownVersion = "unknown"

func moduleVersion(info *debug.BuildInfo) string {
	if info.Main.Path == modulePath {
		return info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == modulePath {
			return d.Version
		}
	}
	return unknownVersion
}

// cap is the user's cap for an API.
func (c *Config) cap(key int16) int16 {
	if v, ok := c.MaxVersions[key]; ok {
		return v
	}
	return conn.NoBound
}

// mechanisms are the names of the configured mechanisms.
func (c *Config) mechanisms() []string {
	names := make([]string, len(c.SASL))
	for i, m := range c.SASL {
		names[i] = m.Name()
	}
	return names
}

// String names the settings without any secret: of SASL only the mechanisms,
// of TLS only whether it is on.
func (c Config) String() string {
	return fmt.Sprintf("netconn.Config{ClientID: %q, TLS: %v, SASL: %v, DialTimeout: %v, RequestTimeout: %v, IdleTimeout: %v}",
		c.clientID(), c.TLS != nil, c.mechanisms(), c.dialTimeout(), c.requestTimeout(), c.idleTimeout())
}

// GoString is String, so that %#v shows no secret either.
func (c Config) GoString() string { return c.String() }

// LogValue is the form for package slog, as String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
