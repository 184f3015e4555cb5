package cli

import (
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// defaultBootstrap is where a cluster is looked for if nothing says where.
const defaultBootstrap = "127.0.0.1:9092"

// sharedFlags are the flags of every command.
type sharedFlags struct {
	bootstrap    string
	tls          bool
	ca           string
	cert         string
	key          string
	tlsName      string
	sasl         string
	user         string
	passwordFile string
	properties   []string
	config       string
	timeout      time.Duration
	quiet        bool
	verbose      int
}

// register adds the flags to a set.
func (s *sharedFlags) register(fs *pflag.FlagSet) {
	fs.StringVarP(&s.bootstrap, "bootstrap", "b", "", "brokers to start from, `HOST:PORT,…` (OTTLA_BOOTSTRAP; default "+defaultBootstrap+")")
	fs.BoolVar(&s.tls, "tls", false, "TLS, with the system's certificate authorities unless --ca names others")
	fs.StringVar(&s.ca, "ca", "", "`FILE` of certificate authorities, PEM; implies --tls (OTTLA_CA with --tls)")
	fs.StringVar(&s.cert, "cert", "", "`FILE` of the client's certificate, PEM; implies --tls (OTTLA_CERT with --tls)")
	fs.StringVar(&s.key, "key", "", "`FILE` of the certificate's key, PEM (OTTLA_KEY with --tls)")
	fs.StringVar(&s.tlsName, "tls-name", "", "`NAME` to expect in the brokers' certificates instead of the host; implies --tls")
	fs.StringVar(&s.sasl, "sasl", "", "`MECHANISM` to log in with: plain, scram-sha-256, scram-sha-512, oauthbearer; password or token come from OTTLA_PASSWORD or --password-file")
	fs.StringVar(&s.user, "user", "", "`NAME` to log in as (OTTLA_USER with --sasl)")
	fs.StringVar(&s.passwordFile, "password-file", "", "`FILE` that holds the password or token")
	fs.StringArrayVarP(&s.properties, "property", "X", nil, "a Kafka client property, `NAME=VALUE`; repeatable")
	fs.StringVar(&s.config, "config", "", "`FILE` with the properties of a Java client")
	fs.DurationVar(&s.timeout, "timeout", defaultTimeout, "time that one request may take, and what is in flight after a signal")
	fs.BoolVarP(&s.quiet, "quiet", "q", false, "no progress on stderr")
	fs.CountVarP(&s.verbose, "verbose", "v", "-v adds the chain of errors, -vv also the last frames on the wire")
}

// flagNames lists the flags that cmd takes, its parents' included.
func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	return slices.Compact(names)
}
