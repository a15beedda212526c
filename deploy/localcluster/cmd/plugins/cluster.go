package main

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	kjson "sigs.k8s.io/json"
)

// example is one line of the input: a Pod, the cluster it is to be placed in,
// and arguments of plugins in the form of a KubeSchedulerConfiguration.
type example struct {
	Pod   *corev1.Pod    `json:"pod"`
	Nodes []*corev1.Node `json:"nodes"`
	Pods  []*corev1.Pod  `json:"pods"`

	PersistentVolumeClaims []*corev1.PersistentVolumeClaim `json:"persistentVolumeClaims"`
	PersistentVolumes      []*corev1.PersistentVolume      `json:"persistentVolumes"`
	StorageClasses         []*storagev1.StorageClass       `json:"storageClasses"`
	CSINodes               []*storagev1.CSINode            `json:"csiNodes"`
	VolumeAttachments      []*storagev1.VolumeAttachment   `json:"volumeAttachments"`

	Services               []*corev1.Service               `json:"services"`
	ReplicationControllers []*corev1.ReplicationController `json:"replicationControllers"`
	ReplicaSets            []*appsv1.ReplicaSet            `json:"replicaSets"`
	StatefulSets           []*appsv1.StatefulSet           `json:"statefulSets"`
	Namespaces             []*corev1.Namespace             `json:"namespaces"`

	Arguments map[string]json.RawMessage `json:"arguments"`

	// What only preemption reads. The dry run begins at the Offset-th node that
	// may be freed, and looks for Wanted candidates; 0 stands for upstream's number.
	PodDisruptionBudgets []*policyv1.PodDisruptionBudget `json:"podDisruptionBudgets"`
	Offset               int32                           `json:"offset"`
	Wanted               int32                           `json:"wanted"`
}

func readExample(line []byte) (*example, error) {
	var read example
	strict, err := kjson.UnmarshalStrict(line, &read)
	if err == nil && len(strict) > 0 {
		err = strict[0] // a misspelt field would make a case compare nothing
	}
	if err != nil {
		return nil, fmt.Errorf("reading the case: %w", err)
	}
	if read.Pod == nil {
		return nil, fmt.Errorf("reading the case: it has no pod")
	}
	read.Pod.Namespace = namespaceOf(read.Pod)
	for _, pod := range read.Pods {
		pod.Namespace = namespaceOf(pod)
	}
	for _, budget := range read.PodDisruptionBudgets {
		budget.Namespace = namespaceOf(budget)
	}
	names := make(map[string]bool, len(read.Nodes))
	for _, node := range read.Nodes {
		if names[node.Name] {
			return nil, fmt.Errorf("reading the case: two nodes are called %q", node.Name)
		}
		names[node.Name] = true
	}
	return &read, nil
}

func namespaceOf(object metav1.Object) string {
	if namespace := object.GetNamespace(); namespace != "" {
		return namespace
	}
	return metav1.NamespaceDefault
}

// livePods are the Pods that kube-scheduler's cache would have: not those that
// have ended (scheduler.go, newPodInformer), have no node, or one that is gone.
func (e *example) livePods() []*corev1.Pod {
	known := make(map[string]bool, len(e.Nodes))
	for _, node := range e.Nodes {
		known[node.Name] = true
	}
	var live []*corev1.Pod
	for _, pod := range e.Pods {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if known[pod.Spec.NodeName] && !ended {
			live = append(live, pod)
		}
	}
	return live
}

// cluster is what plugins read of the objects around a Pod. Plugins take hold
// of it when they are made; its content is replaced for each case.
type cluster struct {
	snapshot *cache.Snapshot
	factory  informers.SharedInformerFactory
	fillers  []func(*example)
}

// newCluster makes an empty cluster. Its informers are never started: their
// stores are filled directly.
func newCluster() *cluster {
	factory := informers.NewSharedInformerFactory(kubernetes.New(nil), 0)
	made := &cluster{snapshot: cache.NewEmptySnapshot(), factory: factory}
	core, apps, storage := factory.Core().V1(), factory.Apps().V1(), factory.Storage().V1()
	fill(made, core.PersistentVolumeClaims().Informer(), func(e *example) []*corev1.PersistentVolumeClaim {
		for _, claim := range e.PersistentVolumeClaims {
			claim.Namespace = namespaceOf(claim)
		}
		return e.PersistentVolumeClaims
	})
	fill(made, core.PersistentVolumes().Informer(), func(e *example) []*corev1.PersistentVolume { return e.PersistentVolumes })
	fill(made, core.Pods().Informer(), func(e *example) []*corev1.Pod {
		if e.Pod == nil { // a state that is judged has none
			return nil
		}
		return []*corev1.Pod{e.Pod} // read anew by preemption
	})
	fill(made, factory.Policy().V1().PodDisruptionBudgets().Informer(), func(e *example) []*policyv1.PodDisruptionBudget {
		return e.PodDisruptionBudgets
	})
	fill(made, core.Namespaces().Informer(), func(e *example) []*corev1.Namespace { return e.Namespaces })
	fill(made, core.Services().Informer(), func(e *example) []*corev1.Service { return e.Services })
	fill(made, core.ReplicationControllers().Informer(), func(e *example) []*corev1.ReplicationController {
		return e.ReplicationControllers
	})
	fill(made, apps.ReplicaSets().Informer(), func(e *example) []*appsv1.ReplicaSet { return e.ReplicaSets })
	fill(made, apps.StatefulSets().Informer(), func(e *example) []*appsv1.StatefulSet { return e.StatefulSets })
	fill(made, storage.StorageClasses().Informer(), func(e *example) []*storagev1.StorageClass { return e.StorageClasses })
	fill(made, storage.CSINodes().Informer(), func(e *example) []*storagev1.CSINode { return e.CSINodes })
	fill(made, storage.VolumeAttachments().Informer(), func(e *example) []*storagev1.VolumeAttachment {
		return e.VolumeAttachments
	})
	return made
}

// fill makes the cluster put one kind of objects into its store, case by case.
func fill[T metav1.Object](made *cluster, informer toolscache.SharedIndexInformer, read func(*example) []T) {
	filled := false
	made.fillers = append(made.fillers, func(e *example) {
		objects := read(e)
		if len(objects) == 0 && !filled {
			return
		}
		filled = len(objects) > 0
		listed := make([]any, len(objects))
		for index, object := range objects {
			listed[index] = object
		}
		// The store is a map behind a lock: it can't fail.
		_ = informer.GetIndexer().Replace(listed, "")
	})
}

// become makes the cluster the one of a case.
func (c *cluster) become(e *example) {
	for _, fill := range c.fillers {
		fill(e)
	}
	c.snapshot = cache.NewSnapshot(e.livePods(), e.Nodes)
}

// NodeInfos, StorageInfos and PodGroupStates are fwk.SharedLister: the present
// snapshot's.
func (c *cluster) NodeInfos() fwk.NodeInfoLister           { return c.snapshot.NodeInfos() }
func (c *cluster) StorageInfos() fwk.StorageInfoLister     { return c.snapshot.StorageInfos() }
func (c *cluster) PodGroupStates() fwk.PodGroupStateLister { return c.snapshot.PodGroupStates() }
