package admin

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// Resource is something that has settings.
type Resource struct {
	Type kmsg.ConfigResourceType
	Name string
}

// TopicResource is the settings of a topic.
func TopicResource(name string) Resource { return Resource{kmsg.ConfigResourceTypeTopic, name} }

// BrokerResource is the settings of one broker. They are asked of that broker.
func BrokerResource(id kafka.NodeID) Resource {
	return Resource{kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(id))}
}

// BrokersResource is the dynamic settings that hold for all brokers.
func BrokersResource() Resource { return Resource{kmsg.ConfigResourceTypeBroker, ""} }

// LoggerResource is the log levels of one broker (KIP-412).
func LoggerResource(id kafka.NodeID) Resource {
	return Resource{kmsg.ConfigResourceTypeBrokerLogger, strconv.Itoa(int(id))}
}

// GroupResource is the settings of a group (KIP-848), from Kafka 4.0 on.
func GroupResource(group string) Resource { return Resource{kmsg.ConfigResourceTypeGroupConfig, group} }

// ClientMetricsResource is a subscription to client metrics (KIP-714), from
// Kafka 3.7 on.
func ClientMetricsResource(name string) Resource {
	return Resource{kmsg.ConfigResourceTypeClientMetrics, name}
}

// String is the type and the name.
func (r Resource) String() string {
	return strings.TrimSpace(strings.ToLower(r.Type.String()) + " " + r.Name)
}

// Config is one setting of a resource.
type Config struct {
	Name      string
	Value     *string           // nil if there is none, and always where Sensitive
	Source    kmsg.ConfigSource // where it comes from; unknown before Kafka 1.1
	Default   bool              // it is not set for this resource itself
	ReadOnly  bool
	Sensitive bool            // a secret: brokers do not tell it
	Type      kmsg.ConfigType // unknown before 2.6
	Synonyms  []Synonym       // every place that has a value, the one in force first; nil before 1.1
}

// Synonym is a place that has a value for a setting.
type Synonym struct {
	Name   string
	Value  *string // nil as in Config
	Source kmsg.ConfigSource
}

// DescribeConfigs reads all settings of resources, in order of their names.
// Those of a broker and its loggers come from that broker itself, the others
// from any.
func (a *Admin) DescribeConfigs(ctx context.Context, resources []Resource) Results[Resource, []Config] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	res := make(Results[Resource, []Config], len(resources))
	if len(resources) == 0 {
		return res
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	for _, r := range resources {
		one := kmsg.NewDescribeConfigsRequestResource()
		one.ResourceType, one.ResourceName, one.ConfigNames = r.Type, r.Name, nil
		req.Resources = append(req.Resources, one)
	}
	resp, err := req.RequestWith(ctx, a.c)
	l := lostIn(err)
	got := make(map[string]*kmsg.DescribeConfigsResponseResource)
	if resp != nil {
		for i := range resp.Resources {
			d := &resp.Resources[i]
			got[Resource{d.ResourceType, d.ResourceName}.key()] = d
		}
	}
	for i, r := range resources {
		err := l.of(r.key(), 0, nil)
		if d := got[r.key()]; d != nil {
			err = l.of(r.key(), d.ErrorCode, d.ErrorMessage)
		} else if err == nil {
			err = errLeftOut
		}
		if err == nil {
			res[i].Value = configsOf(got[r.key()].Configs)
		}
		res[i].Item, res[i].Err = r, opError("describe configs of "+r.String(), "", err)
	}
	return res
}

// key is the resource's name in a PartialError.
func (r Resource) key() string { return strconv.Itoa(int(r.Type)) + "/" + r.Name }

func configsOf(cs []kmsg.DescribeConfigsResponseResourceConfig) []Config {
	out := make([]Config, 0, len(cs))
	for i := range cs {
		c := &cs[i]
		one := Config{
			Name: c.Name, Value: c.Value, Source: c.Source, ReadOnly: c.ReadOnly,
			Sensitive: c.IsSensitive, Type: c.ConfigType,
			Default: c.IsDefault || c.Source == kmsg.ConfigSourceDefaultConfig,
		}
		for j := range c.ConfigSynonyms {
			s := &c.ConfigSynonyms[j]
			one.Synonyms = append(one.Synonyms, Synonym{s.Name, s.Value, s.Source})
		}
		if one.Sensitive {
			one.Value = nil
			for j := range one.Synonyms {
				one.Synonyms[j].Value = nil
			}
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Config) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ConfigChange is what is to change in the settings of one resource. What it
// does not name stays as it is.
type ConfigChange struct {
	Resource Resource
	Set      map[string]string // by the name of the setting
	Unset    []string          // settings that go back to their default
	Append   map[string]string // elements to add to settings that are lists, comma-separated
	Subtract map[string]string // elements to take out of them
}

// String names the resource and the settings, without values: they may be
// secrets.
func (c ConfigChange) String() string {
	names := slices.Sorted(maps.Keys(c.Set))
	names = append(names, c.Unset...)
	names = slices.AppendSeq(names, maps.Keys(c.Append))
	names = slices.AppendSeq(names, maps.Keys(c.Subtract))
	return c.Resource.String() + ": " + strings.Join(names, ", ")
}

// GoString is String, so that %#v shows no secret either.
func (c ConfigChange) GoString() string { return c.String() }

// AlterConfigs changes settings of resources (IncrementalAlterConfigs, KIP-339,
// from Kafka 2.3 on): for each resource all of its changes or none. Those of a
// broker and its loggers go to that broker, the others to the controller. With
// ValidateOnly nothing is changed. Brokers do not tell when a setting is in
// force, so Visible is as Accepted here. A resource may be named once.
func (a *Admin) AlterConfigs(ctx context.Context, changes []ConfigChange, mode Mode) Results[Resource, struct{}] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	errs := a.change(ctx, len(changes), func(open []int) (answers, error) {
		resp, err := alterRequest(changes, open, mode).RequestWith(ctx, a.c)
		l := lostIn(err)
		if l.whole != nil {
			return nil, l.whole
		}
		got := answers{}
		for _, i := range open {
			r := changes[i].Resource
			if err := l.items[r.key()]; err != nil {
				got[i] = err
				continue
			}
			for j := range resp.Resources {
				if d := &resp.Resources[j]; d.ResourceType == r.Type && d.ResourceName == r.Name {
					got[i] = kafka.CodeError(d.ErrorCode, d.ErrorMessage)
				}
			}
		}
		return got, nil
	})
	res := make(Results[Resource, struct{}], len(changes))
	for i := range changes {
		res[i].Item = changes[i].Resource
		res[i].Err = opError("alter configs of "+res[i].Item.String(), "", errs[i])
		if mode == ValidateOnly && OutcomeOf(res[i].Err) == Unknown {
			res[i].Err = &harmless{res[i].Err}
		}
	}
	return res
}

func alterRequest(changes []ConfigChange, open []int, mode Mode) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = mode == ValidateOnly
	for _, i := range open {
		c := &changes[i]
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = c.Resource.Type, c.Resource.Name
		add := func(op kmsg.IncrementalAlterConfigOp, values map[string]string) {
			for _, name := range slices.Sorted(maps.Keys(values)) {
				one := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
				one.Name, one.Op, one.Value = name, op, kmsg.StringPtr(values[name])
				r.Configs = append(r.Configs, one)
			}
		}
		add(kmsg.IncrementalAlterConfigOpSet, c.Set)
		add(kmsg.IncrementalAlterConfigOpAppend, c.Append)
		add(kmsg.IncrementalAlterConfigOpSubtract, c.Subtract)
		for _, name := range c.Unset {
			one := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			one.Name, one.Op = name, kmsg.IncrementalAlterConfigOpDelete
			r.Configs = append(r.Configs, one)
		}
		req.Resources = append(req.Resources, r)
	}
	return req
}

// ListConfigResources names the resources of some types that have settings of
// their own, of all types if none is given. Brokers from 3.7 to 4.0 can only
// name client metrics.
func (a *Admin) ListConfigResources(ctx context.Context, types ...kmsg.ConfigResourceType) ([]Resource, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrListConfigResourcesRequest()
	for _, t := range types {
		req.ResourceTypes = append(req.ResourceTypes, int8(t))
	}
	if len(types) == 1 && types[0] == kmsg.ConfigResourceTypeClientMetrics {
		req.ResourceTypes = nil
	}
	resp, err := req.RequestWith(ctx, a.c)
	if err == nil {
		err = opError("list config resources", "", kafka.CodeError(resp.ErrorCode, nil))
	}
	if err != nil {
		return nil, err
	}
	var out []Resource
	for _, r := range resp.ConfigResources {
		one := Resource{kmsg.ConfigResourceType(r.Type), r.Name}
		if resp.Version == 0 {
			one.Type = kmsg.ConfigResourceTypeClientMetrics
		}
		if len(types) == 0 || slices.Contains(types, one.Type) {
			out = append(out, one)
		}
	}
	return out, nil
}
