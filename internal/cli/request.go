package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// requestFlags are the flags of `ottla request`.
type requestFlags struct {
	list    bool
	schema  string
	broker  int32
	version int16
}

func requestCommand(a *app) *cobra.Command {
	var f requestFlags
	cmd := &cobra.Command{
		Use:   "request API ['{json}']",
		Short: "Send one request of Kafka's protocol and print the response as JSON",
		Long: "Send one request of Kafka's protocol and print the response as JSON.\n\n" +
			"API is a name such as Metadata, or its number. The fields of the body are those of --schema;\n" +
			"what it does not name keeps its default. The request goes where it belongs (any broker, the\n" +
			"controller, the leaders, a coordinator), or to the broker of --broker.",
		Example: "  ottla request Metadata '{\"topics\":[{\"topic\":\"events\"}]}'\n  ottla request --schema Metadata",
		Args: func(cmd *cobra.Command, args []string) error {
			if f.list || f.schema != "" {
				return takes()(cmd, args)
			}
			if len(args) == 2 {
				return nil
			}
			return takes("API")(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case f.list:
				return listAPIs(a)
			case f.schema != "":
				return printSchema(a, f.schema)
			}
			return sendRequest(a, &f, args)
		},
	}
	cmd.Flags().BoolVar(&f.list, "list", false, "list the requests that this build knows")
	cmd.Flags().StringVar(&f.schema, "schema", "", "print the fields of `API`'s request and response")
	cmd.Flags().Int32Var(&f.broker, "broker", -1, "`ID` of the broker to ask")
	cmd.Flags().Int16Var(&f.version, "version", -1, "version of the request; default: the highest that both sides speak")
	cmd.Flags().Lookup("version").DefValue = ""
	cmd.Flags().Lookup("broker").DefValue = ""
	return outputFlag(cmd)
}

// listAPIs prints every API.
func listAPIs(a *app) error {
	all := apis()
	if a.stdout.json {
		return a.stdout.document(all)
	}
	var rows [][]string
	for _, one := range all {
		rows = append(rows, []string{itoa(int(one.Key)), one.Name, itoa(int(one.MaxVersion))})
	}
	return a.stdout.table([]string{"KEY", "NAME", "MAX"}, rows)
}

// printSchema prints the fields of one API.
func printSchema(a *app, name string) error {
	one, err := findAPI(name)
	if err != nil {
		return err
	}
	s := schemaOf(one)
	if a.stdout.json {
		return a.stdout.document(s)
	}
	return s.write(a.stdout)
}

// sendRequest sends the request of the command line and prints the response.
func sendRequest(a *app, f *requestFlags, args []string) error {
	one, err := findAPI(args[0])
	if err != nil {
		return err
	}
	req := kmsg.RequestForKey(one.Key)
	setDefaults(reflect.ValueOf(req))
	if len(args) == 2 {
		if err := decodeMessage([]byte(args[1]), req); err != nil {
			return usagef("request %s: %v; `ottla request --schema %s` shows its fields", one.Name, err, one.Name)
		}
	}
	if f.version > one.MaxVersion || f.version < -1 {
		return usagef("--version %d: this build speaks %s up to version %d", f.version, one.Name, one.MaxVersion)
	}
	if f.version >= 0 {
		a.maxVersions = map[int16]int16{one.Key: f.version}
	}
	return a.withCluster(func(ctx context.Context, c *client) error {
		resp, err := exchange(ctx, a, c, f, req)
		if resp != nil && !reflect.ValueOf(resp).IsNil() {
			if printErr := printMessage(a, resp); printErr != nil {
				return printErr
			}
		}
		return err
	})
}

// exchange sends req where it belongs, or where --broker says.
func exchange(ctx context.Context, a *app, c *client, f *requestFlags, req kmsg.Request) (kmsg.Response, error) {
	mutates := retry.ClassOf(req.Key()) != retry.Safe
	if mutates {
		ctx = a.work // finish what is in flight
	}
	var to asker = c
	if f.broker >= 0 {
		to = c.broker(f.broker)
	}
	if f.version >= 0 {
		if err := speaks(ctx, to, req, f.version); err != nil {
			return nil, err
		}
	}
	resp, err := to.Request(ctx, req)
	if errors.Is(err, cluster.ErrNotRouted) {
		return nil, usagef("request %s: it is bound to one broker: --broker ID says which", kmsg.NameForKey(req.Key()))
	}
	if err != nil && mutates {
		err = changed(err)
	}
	return resp, err
}

// speaks reports an error if the broker does not speak the wanted version.
func speaks(ctx context.Context, to asker, req kmsg.Request, version int16) error {
	resp, err := askVersions(ctx, to)
	if err != nil {
		return err
	}
	e := &kafka.VersionError{
		API: req.Key(), Name: kmsg.NameForKey(req.Key()), Addr: "this cluster",
		ClientMin: version, ClientMax: version, BrokerMin: -1, BrokerMax: -1, Constraint: "--version",
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == req.Key() {
			if e.BrokerMin, e.BrokerMax = k.MinVersion, k.MaxVersion; version >= k.MinVersion && version <= k.MaxVersion {
				return nil
			}
		}
	}
	return e
}

// printMessage prints a response, indented on a terminal.
func printMessage(a *app, resp kmsg.Response) error {
	text := encodeMessage(nil, reflect.ValueOf(resp).Elem())
	if a.stdout.terminal {
		var b bytes.Buffer
		if err := json.Indent(&b, text, "", "  "); err != nil {
			return err
		}
		text = b.Bytes()
	}
	return a.stdout.printf("%s", text)
}
