import os,tempfile,sys
os.environ["DJANGO_SETTINGS_MODULE"]="controlplane.settings"
os.environ["BERTH_STATE_DIR"]=tempfile.mkdtemp()
import django; django.setup()
from collections import defaultdict
from time import perf_counter
from pathlib import Path
from random import Random
from bench.recording import as_kube_scheduler_asks
from bench.engine import *
from policies.engine.decision import *
from policies.engine.ruleset import Revision
import scheduler.decisions.record as R, scheduler.decisions.journal as J, scheduler.decisions.recorder as RC, scheduler.decisions.spool as SP, scheduler.decisions.snapshots as S
from statistics import median
T=defaultdict(list)
def wrap(mod,name):
    f=getattr(mod,name)
    def g(*a,**k):
        t=perf_counter()
        try: return f(*a,**k)
        finally: T[name].append(perf_counter()-t)
    setattr(mod,name,g)
for m,n in((R,"store_order"),(R,"meaning_of"),(R,"_note_answer"),(R,"store_answer"),(R,"_encode"),(J,"names_between"),(J,"change_between"),(J,"encode_change"),(SP.Spool,"_write"),(SP.Spool,"append"),(J.Journal,"place_of"),(J.Journal,"number_of"),(SP,"frame"),(R.Entry,"head")):
    wrap(m,n)
from scheduler.decisions.record import entry_of, rows_of
from tests.builders import make_assignment
from tests.recording import *
size=int(sys.argv[1])
rec=RC.Recorder(root=Path(tempfile.mkdtemp())/"s",writer="w",stream=MemoryStream(),max_bytes=PLENTY,marks=lambda _:{})
rec.spool.open()
rules,rev,asg=classic_default_set(),CompiledRevision(Revision(number=1)),make_assignment()
snap=make_cluster(size); rnd=Random(1)
import gc; gc.collect(); gc.freeze()
for i in range(80):
    js=make_pod(50_000+i,i*7%(size*20//25)); pod=Pod.from_json(js)
    names=as_kube_scheduler_asks(list(snap.nodes),rnd); rows=rows_of(snap.table,names)
    for verb in("filter","prioritize"):
        sc=verb=="prioritize"
        a=decide(rules,Cycle(pod=pod,snapshot=snap,now=NOW),rows,filtering=not sc,scoring=sc)
        for _ in range(2):
            t=perf_counter()
            e=entry_of(verb=verb,pod=pod,now=NOW,revision=rev,assignment=asg,rule_set=rules,snapshot=snap,names=names,rows=rows,answer=a)
            t2=perf_counter(); rec.record(e); t3=perf_counter()
            T[f"{verb} entry {_}"].append(t2-t); T[f"{verb} record {_}"].append(t3-t2)
    snap=place(snap,js,names[0])
    if i==5: T.clear()
for k,v in sorted(T.items()): print(f"{k:25} p50 {median(v)*1e6:7.0f} min {min(v)*1e6:7.0f} n {len(v)}")
