package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/kafka"
)

// produceFlags are the flags of `ottla produce`.
type produceFlags struct {
	delim       string
	keySep      string
	nullEmpty   bool
	partition   int32
	headers     []string
	codec       string
	acks        string
	partitioner string
	tx          string
	create      bool
	timestamp   int64
	json        bool
	report      bool
	keepGoing   bool
	files       []string
}

func produceCommand(a *app) *cobra.Command {
	var f produceFlags
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Write records from stdin or files to a topic",
		Long: "Write records from stdin or files to a topic, one a line, and print nothing if all is well.\n\n" +
			"Records without a key are spread over the partitions; those with one go where its hash says, as with Java's\n" +
			"client. Every record is written once, in order within its partition. A record that is refused is named by its\n" +
			"line; with --keep-going the rest goes on, else reading stops there, and the last line says how many records\n" +
			"were written, refused and of unknown outcome. With --tx all of it becomes visible at once at the end of the input\n" +
			"(to consumers that read committed records), or nothing does; -X transaction.timeout.ms says how long the input may\n" +
			"take, 15 minutes if it does not.",
		Example: "  seq 1000 | ottla produce events --create\n" +
			"  printf 'alice:1\\nbob:2\\n' | ottla produce events -K : -z zstd --report",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(f.files) > 0 && len(args) > 1 {
				return nil // -l a b c
			}
			return takes("TOPIC")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				f.files = append(f.files, args[1:]...)
			}
			shape, err := f.shape(cmd)
			if err != nil {
				return err
			}
			return a.withCluster(func(ctx context.Context, c *client) error {
				return a.produce(ctx, c, args[0], &f, shape)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.delim, "delimiter", "D", `\n`, `delimiter of records, with \t \n \r \\ \xNN`)
	fs.StringVarP(&f.keySep, "key-separator", "K", "", `what stands between key and value, with \t \n \r \\ \xNN; a line without it has no key`)
	fs.BoolVarP(&f.nullEmpty, "null-empty", "Z", false, "an empty value is null, a tombstone")
	fs.Int32VarP(&f.partition, "partition", "p", -1, "partition for all records")
	fs.StringArrayVarP(&f.headers, "header", "H", nil, "a header for all records, `NAME=VALUE`; repeatable")
	fs.StringVarP(&f.codec, "compress", "z", "", "`CODEC`: none, gzip, snappy, lz4, zstd (default snappy)")
	fs.StringVar(&f.acks, "acks", "", "`WHO` has a record when it counts as written: all (in-sync replicas, exactly once; the default), 1 (the leader), 0 (nobody is asked)")
	fs.StringVar(&f.partitioner, "partitioner", "murmur2", "`RULE` that chooses partitions: murmur2 (Java's), crc32 (librdkafka's), crc32-consistent, fnv1a (sarama's, kafka-go's), fnv1a-reference, uniform and round-robin (whatever the key)")
	fs.StringVar(&f.tx, "tx", "", "write all of the input as one transaction with the transactional `ID`: committed at its end, aborted on an error or a signal")
	fs.BoolVar(&f.create, "create", false, "make the topic if it is missing, with the brokers' defaults")
	fs.Int64Var(&f.timestamp, "timestamp", 0, "timestamp of all records, in `MS` since 1970; default: the time of reading")
	fs.BoolVar(&f.json, "json", false, "read objects as `consume --json` prints them")
	fs.BoolVar(&f.report, "report", false, "print topic, partition and offset of each record; -1 where there is none")
	fs.BoolVar(&f.keepGoing, "keep-going", false, "go on behind a record that is refused")
	fs.StringArrayVarP(&f.files, "lines-of", "l", nil, "read `FILE…` instead of stdin")
	return cmd
}

// shape is how input becomes records.
type shape struct {
	delim     []byte
	keySep    []byte // nil: no keys
	nullEmpty bool
	json      bool
	base      kafka.Record // topic, partition, headers and timestamp of all records
}

// shape checks the flags.
func (f *produceFlags) shape(cmd *cobra.Command) (*shape, error) {
	s := &shape{nullEmpty: f.nullEmpty, json: f.json, base: kafka.Record{Partition: -1, Timestamp: kafka.Timestamp(f.timestamp)}}
	var err error
	if s.delim, err = unescape(f.delim); err != nil || len(s.delim) == 0 {
		return nil, usagef("-D %q: %s", f.delim, textOr(err, "a delimiter has at least one byte"))
	}
	if cmd.Flags().Changed("key-separator") {
		if s.keySep, err = unescape(f.keySep); err != nil || len(s.keySep) == 0 {
			return nil, usagef("-K %q: %s", f.keySep, textOr(err, "a separator has at least one byte"))
		}
	}
	if f.json {
		for _, name := range []string{"delimiter", "key-separator", "null-empty"} {
			if cmd.Flags().Changed(name) {
				return nil, usagef("--json and --%s do not go together: an object has its key and value", name)
			}
		}
	}
	if cmd.Flags().Changed("partition") {
		if f.partition < 0 {
			return nil, usagef("-p %d: partitions start at 0", f.partition)
		}
		s.base.Partition = f.partition
	}
	if err := cmp.Or(f.checkOptions(), f.checkTx(cmd)); err != nil {
		return nil, err
	}
	if f.timestamp < 0 {
		return nil, usagef("--timestamp %d: milliseconds since 1970", f.timestamp)
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return nil, usagef("-H %s: expected NAME=VALUE", h)
		}
		s.base.Headers = append(s.base.Headers, kafka.Header{Key: name, Value: []byte(value)})
	}
	return s, nil
}

// textOr is the text of err, or other without one.
func textOr(err error, other string) string {
	if err != nil {
		return err.Error()
	}
	return other
}

// record makes a record of one piece of input; its slices alias data. A record
// without a partition of its own has -1.
func (s *shape) record(data []byte) (kafka.Record, error) {
	if s.json {
		r, err := parseJSONRecord(data)
		if err != nil {
			return r, err
		}
		r.Topic = s.base.Topic
		if s.base.Partition >= 0 {
			r.Partition = s.base.Partition
		}
		if s.base.Timestamp > 0 {
			r.Timestamp = s.base.Timestamp
		}
		r.Headers = append(r.Headers, s.base.Headers...)
		return r, nil
	}
	r := s.base
	r.Value = data
	if s.keySep != nil {
		if key, value, ok := cut(data, s.keySep); ok {
			r.Key, r.Value = key, value
		}
	}
	if s.nullEmpty && len(r.Value) == 0 {
		r.Value = nil
	}
	return r, nil
}

// cut splits at the first sep; neither part is nil.
func cut(data, sep []byte) (before, after []byte, ok bool) {
	at := bytes.Index(data, sep)
	if at < 0 {
		return nil, nil, false
	}
	return data[:at:at], data[at+len(sep):], true
}

// source is one input and its name, empty for stdin.
type source struct {
	name string
	open func() (io.ReadCloser, error)
}

// sources lists what produce reads, in order.
func sources(a *app, files []string) []source {
	if len(files) == 0 {
		return []source{{open: func() (io.ReadCloser, error) { return io.NopCloser(a.stdin), nil }}}
	}
	var list []source
	for _, name := range files {
		list = append(list, source{name: name, open: func() (io.ReadCloser, error) { return os.Open(name) }})
	}
	return list
}

// inputSize is the bytes of all input, 0 if one of them is no regular file.
func inputSize(a *app, files []string) int64 {
	total := int64(0)
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return 0
		}
		total += info.Size()
	}
	if in, ok := a.stdin.(*os.File); ok && len(files) == 0 {
		if info, err := in.Stat(); err == nil && info.Mode().IsRegular() {
			total = info.Size()
		}
	}
	return total
}

// lineName is the place of a record in the input.
func lineName(source string, line int64) string {
	if source == "" {
		return fmt.Sprintf("line %d", line)
	}
	return fmt.Sprintf("%s:%d", source, line)
}

// produce checks the topic and writes all input to it.
func (a *app) produce(ctx context.Context, c *client, topic string, f *produceFlags, s *shape) error {
	info, err := topicToWrite(ctx, a, c, topic, f.create)
	if err != nil {
		return err
	}
	s.base.Topic = topic
	partitions := int32(len(info.Partitions))
	if s.base.Partition >= partitions {
		return fmt.Errorf("topic %s has no partition %d: its %s go from 0 to %d", topic, s.base.Partition,
			count(int64(partitions), "partition"), partitions-1)
	}
	w, err := newWriter(a, c, f, s, partitions)
	if err != nil {
		return err
	}
	defer w.close()
	for _, src := range sources(a, f.files) {
		err := w.readSource(src)
		if err != nil && !errors.Is(err, errStopInput) {
			w.inputErr = err
		}
		if err != nil || w.halt.Err() != nil {
			break
		}
	}
	return w.finish()
}

// topicToWrite finds the topic, or makes it.
func topicToWrite(ctx context.Context, a *app, c *client, topic string, create bool) (*topicInfo, error) {
	infos, err := existing(ctx, c, []string{topic})
	var unknown *unknownTopicError
	if create && errors.As(err, &unknown) {
		if _, err := makeTopics(ctx, c, []string{topic}, newTopic{partitions: -1, replicas: -1}); err != nil {
			return nil, err
		}
		infos, err = existing(ctx, c, []string{topic})
	}
	if err != nil {
		return nil, err
	}
	return infos[0], nil
}
