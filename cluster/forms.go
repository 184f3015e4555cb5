package cluster

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bothForms fills the fields of old and new versions of a request from each
// other, on a copy: at whatever version it goes out, it asks for the same.
func bothForms(req kmsg.Request) kmsg.Request {
	switch r := req.(type) {
	case *kmsg.DeleteTopicsRequest:
		return deleteTopicsForms(*r)
	case *kmsg.LeaveGroupRequest:
		return leaveGroupForms(*r)
	case *kmsg.ApiVersionsRequest:
		c := *r
		if c.ClientSoftwareName == "" {
			c.ClientSoftwareName = "ottla"
		}
		if c.ClientSoftwareVersion == "" {
			c.ClientSoftwareVersion = "unknown"
		}
		return &c
	case *kmsg.FindCoordinatorRequest:
		c := *r
		if len(c.CoordinatorKeys) == 0 {
			c.CoordinatorKeys = []string{c.CoordinatorKey}
		} else if c.CoordinatorKey == "" {
			c.CoordinatorKey = c.CoordinatorKeys[0]
		}
		return &c
	}
	return req
}

func deleteTopicsForms(r kmsg.DeleteTopicsRequest) kmsg.Request {
	switch {
	case len(r.Topics) == 0:
		for _, name := range r.TopicNames {
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.Topic = kmsg.StringPtr(name)
			r.Topics = append(r.Topics, t)
		}
	case len(r.TopicNames) == 0:
		for _, t := range r.Topics {
			if t.Topic != nil {
				r.TopicNames = append(r.TopicNames, *t.Topic)
			}
		}
	}
	return &r
}

func leaveGroupForms(r kmsg.LeaveGroupRequest) kmsg.Request {
	switch {
	case len(r.Members) == 0 && r.MemberID != "":
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = r.MemberID
		r.Members = append(r.Members, m)
	case len(r.Members) == 1 && r.MemberID == "":
		r.MemberID = r.Members[0].MemberID
	}
	return &r
}
