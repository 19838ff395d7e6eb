//! A small profile of our own making.

use super::*;

/// One GPU a node up to four, on up to two nodes; twice as fast with half the samples.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "placements.csv",
        "placement,local_bsz,step_time,sync_time\n\
         1,8,1.0,0.0\n1,16,2.0,0.0\n\
         2,8,1.2,0.2\n2,16,2.2,0.2\n\
         4,8,1.4,0.4\n4,16,2.4,0.4\n\
         12,8,2.0,1.0\n12,16,3.0,1.0\n\
         22,8,2.4,1.4\n22,16,3.4,1.4\n",
    );
    write(
        "scalability.csv",
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n\
         4,4,8,3.0,2.0\n4,4,16,4.0,2.0\n4,8,8,4.0,3.0\n4,8,16,5.0,3.0\n",
    );
    write(
        "validation-16.csv",
        "progress,iteration,metric,grad_sqr,grad_var\n100,100,1,1.0,3.0\n200,200,2,1.0,9.0\n",
    );
    write(
        "validation-64.csv",
        "progress,iteration,metric,grad_sqr,grad_var\n101,60,1,1.0,3.0\n202,100,2,1.0,9.0\n",
    );
    folder
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn a_step_is_interpolated_between_what_was_measured() {
    let folder = folder();
    let profile = Profile::read(folder.path()).unwrap();
    let step = |nodes, gpus, local| profile.step_time(nodes, gpus, local).map(|s| s.step_s);
    assert!(near(step(1, 1, 12).unwrap(), 1.5));
    assert!(near(step(1, 3, 8).unwrap(), 1.3));
    assert!(near(step(2, 3, 8).unwrap(), 2.0));
    // Three nodes lie between two with 4 GPUs and four with 8.
    assert!(near(step(3, 6, 8).unwrap(), 3.2));
    assert_eq!(step(1, 5, 8), None);
    assert_eq!(step(2, 1, 8), None);
    let measured = profile.step_time_on(&[2, 0, 1], 8).unwrap();
    assert!(near(measured.sync_s, 1.0));
}

#[test]
fn a_large_batch_is_not_free() {
    let folder = folder();
    let profile = Profile::read(folder.path()).unwrap();
    assert_eq!((profile.batch_min(), profile.batch_max()), (16, 64));
    assert!(near(profile.gain(16, 0.0), 1.0));
    // Noise 3: (3 + 1) / (3 / 4 + 1); in the second epoch noise 9.
    assert!(near(profile.gain(64, 0.0), 4.0 / 1.75));
    assert!(near(profile.gain(64, 100.0), 10.0 / 3.25));
    assert!(near(profile.efficiency(64, 0.0), 1.0 / 1.75));
    assert!(near(profile.progress_total(), 200.0));
    assert!(near(profile.epoch_end(0.0), 100.0));
    assert!(near(profile.epoch_end(150.0), 200.0));
}

#[test]
fn a_batch_that_does_not_fit_is_accumulated() {
    let folder = folder();
    let profile = Profile::read(folder.path()).unwrap();
    let split = |batch, gpus| {
        let split = profile.split(batch, gpus);
        (split.local_batch, split.accumulations)
    };
    assert_eq!(split(16, 1), (16, 0));
    assert_eq!(split(64, 1), (16, 3));
    assert_eq!(split(32, 2), (16, 0));
    assert_eq!(split(20, 1), (10, 1));
    // Four computations of 2 s each and no exchange.
    let rate = profile.progress_per_s(&[1], 64, 0.0).unwrap();
    assert!(near(rate, 4.0 / 1.75 / 8.0));
}

#[test]
fn a_profile_that_lacks_something_is_refused() {
    let without = |name: &str| {
        let folder = folder();
        fs::remove_file(folder.path().join(name)).unwrap();
        Profile::read(folder.path()).unwrap_err().code()
    };
    assert_eq!(without("placements.csv"), "AP0601");
    let folder = folder();
    let write = |text: &str| fs::write(folder.path().join("scalability.csv"), text).unwrap();
    write("num_nodes,num_replicas,local_bsz,step_time\n");
    let error = Profile::read(folder.path()).unwrap_err();
    assert_eq!(error.code(), "AP0603");
    write("num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,6,8,x,1\n");
    let error = Profile::read(folder.path()).unwrap_err();
    assert!(
        error.to_string().contains("line 2: `step_time` is `x`"),
        "{error}"
    );
}
