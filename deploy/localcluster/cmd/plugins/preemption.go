package main

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// profilePlugins are those of the default profile (apis/config/v1/default_plugins.go)
// that have a part in preemption, in its order, without those that Berth has no
// rule for (VolumeBinding, DynamicResources and the like).
var profilePlugins = []string{
	names.PrioritySort, names.NodeUnschedulable, names.NodeName, names.TaintToleration, names.NodeAffinity,
	names.NodePorts, names.NodeResourcesFit, names.VolumeRestrictions, names.NodeVolumeLimits, names.VolumeZone,
	names.PodTopologySpread, names.InterPodAffinity, names.DefaultPreemption, names.DefaultBinder,
}

var pluginsWithArguments = []string{
	names.NodeAffinity, names.NodeResourcesFit, names.PodTopologySpread, names.InterPodAffinity, names.DefaultPreemption,
}

// preemptor filters as kube-scheduler does and runs DefaultPreemption's own
// PostFilter for a Pod that fits nowhere, one case at a time.
type preemptor struct {
	ctx       context.Context
	cluster   *cluster
	nominated nominations
	framework framework.Framework
	plugin    *defaultpreemption.DefaultPreemption
	evicted   []string
	cleared   []string
}

func newPreemption() (work, error) {
	made, err := newPreemptor(context.Background())
	if err != nil {
		return nil, err
	}
	return answering(readExample, made.preempt), nil
}

func newPreemptor(ctx context.Context) (*preemptor, error) {
	metrics.Register()
	made := &preemptor{ctx: klog.NewContext(ctx, logr.Discard()), cluster: newCluster(), nominated: nominations{}}
	registry := plugins.NewInTreeRegistry()
	registry[defaultpreemption.Name] = made.newPlugin
	profile, err := newProfile()
	if err != nil {
		return nil, err
	}
	factory := made.cluster.factory
	made.framework, err = frameworkruntime.NewFramework(made.ctx, registry, profile,
		frameworkruntime.WithSnapshotSharedLister(made.cluster),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSharedDRAManager(withoutDevices{}),
		frameworkruntime.WithPodNominator(made.nominated),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithParallelism(1)) // so that nodes are looked at in their order
	if err != nil {
		return nil, fmt.Errorf("making the framework: %w", err)
	}
	made.framework.SetAPICacher(patches{made})
	return made, nil
}

// newPlugin makes the plugin without any feature, so that all is done when
// PostFilter returns, and has it note whom it would evict.
func (p *preemptor) newPlugin(ctx context.Context, arguments runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	made, err := defaultpreemption.New(ctx, arguments, handle, feature.Features{})
	if err != nil {
		return nil, err
	}
	made.Executor.PreemptPod = func(
		_ context.Context, _ preemption.Candidate, _ preemption.ExecutorPreemptor, victim *corev1.Pod, _ string,
	) error {
		p.evicted = append(p.evicted, string(victim.UID))
		return nil
	}
	p.plugin = made
	return made, nil
}

func newProfile() (*config.KubeSchedulerProfile, error) {
	profile := &config.KubeSchedulerProfile{SchedulerName: corev1.DefaultSchedulerName, Plugins: &config.Plugins{}}
	for _, name := range profilePlugins {
		enabled := config.Plugin{Name: name, Weight: 1}
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, enabled)
	}
	for _, name := range pluginsWithArguments {
		kind := configv1.SchemeGroupVersion.WithKind(name + "Args")
		arguments, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte("{}"), &kind, nil)
		if err != nil {
			return nil, fmt.Errorf("making the arguments of %s: %w", name, err)
		}
		profile.PluginConfig = append(profile.PluginConfig, config.PluginConfig{Name: name, Args: arguments})
	}
	return profile, nil
}

// nominations are the Pods nominated to each node: fwk.PodNominator. Here they
// never change within a case.
type nominations map[string][]fwk.PodInfo

func (n nominations) NominatedPodsForNode(node string) []fwk.PodInfo                            { return n[node] }
func (nominations) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo)               {}
func (nominations) DeleteNominatedPodIfExists(*corev1.Pod)                                      {}
func (nominations) UpdateNominatedPod(logger klog.Logger, old *corev1.Pod, updated fwk.PodInfo) {}

// become takes the Pods of a case that wait with a nomination.
func (n nominations) become(pods []*corev1.Pod) error {
	clear(n)
	for _, pod := range pods {
		node := pod.Status.NominatedNodeName
		if node == "" || pod.Spec.NodeName != "" {
			continue
		}
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return fmt.Errorf("reading the nominated Pod %s: %w", pod.Name, err)
		}
		n[node] = append(n[node], info)
	}
	return nil
}

// patches notes which Pods would lose their nomination: the one part of
// fwk.APICacher that DefaultPreemption uses.
type patches struct{ *preemptor }

func (p patches) PatchPodStatus(pod *corev1.Pod, _ *corev1.PodCondition, _ *fwk.NominatingInfo) (<-chan error, error) {
	p.cleared = append(p.cleared, string(pod.UID))
	return nil, nil
}
func (patches) BindPod(*corev1.Binding) (<-chan error, error)        { return nil, nil }
func (patches) WaitOnFinish(_ context.Context, _ <-chan error) error { return nil }

// preempted is one line of the output. Where the Pod fits somewhere there is no
// more than Feasible, where a plugin's error ends the cycle, no more than Failed.
// Candidates are what the dry run gives that looks at nodes
// in the order of the case, from its offset on.
type preempted struct {
	Failed     string          `json:"failed,omitempty"`
	Feasible   []string        `json:"feasible"`
	Statuses   map[string]code `json:"statuses,omitempty"`
	Wanted     int32           `json:"wanted"`
	Candidates []candidate     `json:"candidates"`
	Code       string          `json:"code,omitempty"`
	Message    string          `json:"message,omitempty"`
	Node       string          `json:"node"`
	Evicted    []string        `json:"evicted"`
	Cleared    []string        `json:"cleared"`
}

type code = string

type candidate struct {
	Node          string   `json:"node"`
	Victims       []string `json:"victims"`
	PDBViolations int64    `json:"pdbViolations"`
}

func (p *preemptor) preempt(read *example) (*preempted, error) {
	p.cluster.become(read)
	p.evicted, p.cleared = []string{}, []string{}
	if err := p.nominated.become(read.Pods); err != nil {
		return nil, err
	}
	nodes := make([]fwk.NodeInfo, len(read.Nodes))
	for index, node := range read.Nodes {
		info, err := p.cluster.NodeInfos().Get(node.Name)
		if err != nil {
			return nil, err
		}
		nodes[index] = info
	}
	state := framework.NewCycleState()
	found := &preempted{Feasible: []string{}, Statuses: map[string]code{}, Candidates: []candidate{}}
	statuses, fault := p.filter(read.Pod, state, nodes, found)
	if fault != nil {
		return &preempted{Failed: fault.Error()}, nil
	}
	if len(found.Feasible) == 0 {
		if err := p.dryRun(read, state, nodes, statuses, found); err != nil {
			return nil, err
		}
		result, status := p.framework.RunPostFilterPlugins(p.ctx, state, read.Pod, statuses)
		found.Code, found.Message = status.Code().String(), status.Message()
		if result != nil && result.NominatingInfo != nil {
			found.Node = result.NominatedNodeName
		}
	}
	found.Evicted, found.Cleared = p.evicted, p.cleared
	return found, nil
}

// filter does what schedule_one.go, findNodesThatFitPod, does without
// extenders.
func (p *preemptor) filter(
	pod *corev1.Pod, state fwk.CycleState, nodes []fwk.NodeInfo, found *preempted,
) (*framework.NodeToStatus, error) {
	statuses := framework.NewDefaultNodeToStatus()
	eligible, status, _ := p.framework.RunPreFilterPlugins(p.ctx, state, pod)
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return nil, status.AsError()
		}
		statuses.SetAbsentNodesStatus(status)
	} else {
		for _, node := range nodes {
			name := node.Node().Name
			if !eligible.AllNodes() && !eligible.NodeNames.Has(name) {
				continue
			}
			status := p.framework.RunFilterPluginsWithNominatedPods(p.ctx, state, pod, node)
			if status.Code() == fwk.Error {
				return nil, status.AsError()
			}
			if status.IsSuccess() {
				found.Feasible = append(found.Feasible, name)
			} else {
				statuses.Set(name, status)
			}
		}
	}
	for _, node := range nodes {
		name := node.Node().Name
		found.Statuses[name] = statuses.Get(name).Code().String()
	}
	for _, name := range found.Feasible {
		found.Statuses[name] = fwk.Success.String()
	}
	return statuses, nil
}

// dryRun finds the candidates as PostFilter does, but beginning at the case's
// offset and in the order of its nodes; PostFilter takes both by chance.
func (p *preemptor) dryRun(
	read *example, state fwk.CycleState, nodes []fwk.NodeInfo, statuses *framework.NodeToStatus, found *preempted,
) error {
	var potential []fwk.NodeInfo
	for _, node := range nodes {
		if statuses.Get(node.Node().Name).Code() == fwk.Unschedulable {
			potential = append(potential, node)
		}
	}
	if len(potential) == 0 {
		return nil
	}
	_, found.Wanted = p.plugin.GetOffsetAndNumCandidates(int32(len(potential)))
	wanted := found.Wanted
	if read.Wanted > 0 {
		wanted = min(read.Wanted, int32(len(potential)))
	}
	offset := read.Offset % int32(len(potential))
	candidates, _, err := p.plugin.Evaluator.DryRunPreemption(
		p.ctx, state, read.Pod, potential, read.PodDisruptionBudgets, offset, wanted)
	if err != nil && len(candidates) == 0 {
		return err
	}
	for _, each := range candidates {
		found.Candidates = append(found.Candidates, candidate{
			each.Name(), uids(each.Victims().Pods), each.Victims().NumPDBViolations,
		})
	}
	return nil
}

func uids(pods []*corev1.Pod) []string {
	found := make([]string, len(pods))
	for index, pod := range pods {
		found[index] = string(pod.UID)
	}
	return found
}
