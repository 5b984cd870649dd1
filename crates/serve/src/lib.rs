//! The planner as a page of a local server: the page asks, one search at a time answers.
//!
//! No request reads or writes a file: models and clusters are presets, or the text of a `config.json` that the request itself
//! holds. A question is of at most [`LONGEST`] bytes, its search ends after [`SECONDS`] (what explains the answer comes after it) and
//! when its client goes, and while [`MOST_WAITING`] questions wait others are refused.

mod asked;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use asked::Asked;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use quadrille_cost::native::{Framework, NarrowFormat};
use quadrille_pages::planner_page;
use quadrille_plan::native::Cancel;
use quadrille_spec::{Cluster, Model};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Bytes of a question at most: a model's `config.json` has a few thousand.
pub const LONGEST: usize = 256 << 10;

/// Seconds after which a search ends with what it has found.
pub const SECONDS: f64 = 10.0;

/// Questions that wait for a search, at most.
pub const MOST_WAITING: usize = 16;

/// What requests share.
struct Searches {
    /// One search uses all cores.
    running: Arc<Semaphore>,
    /// Of the search and of the questions that wait.
    places: Arc<Semaphore>,
}

/// Answers requests until the process ends.
///
/// # Errors
/// A listener that cannot be used.
pub fn serve(listener: TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, router()).await
    })
}

fn router() -> Router {
    let places = Arc::new(Semaphore::new(1 + MOST_WAITING));
    let searches = Searches { running: Arc::new(Semaphore::new(1)), places };
    Router::new()
        .route("/", get(planner))
        .route("/plan", post(plan))
        .layer(map_response(careful))
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state(Arc::new(searches))
}

/// The page, with the names that it offers.
async fn planner() -> Html<String> {
    Html(planner_page(&json!({
        "models": Model::preset_names().collect::<Vec<_>>(),
        "clusters": Cluster::preset_names().filter(is_priced).collect::<Vec<_>>(),
        "frameworks": Framework::ALL.map(|framework| framework.name),
        "products": NarrowFormat::ALL.map(|(name, _)| name),
    })))
}

/// Whether a cluster has devices that are described: `local` has what a calibration finds.
fn is_priced(name: &&str) -> bool {
    Cluster::preset(name).is_ok_and(|cluster| cluster.device.is_some())
}

/// The answer to a question, as `report` has it for pages.
async fn plan(State(searches): State<Arc<Searches>>, asked: Result<Json<Asked>, JsonRejection>) -> Response {
    let asked = match asked {
        Ok(Json(asked)) => asked,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let reason = format!("the question has more than {LONGEST} bytes: paste the text of a config.json alone");
            return refusal(rejection.status(), &reason);
        }
        Err(rejection) => return refusal(rejection.status(), &rejection.body_text()),
    };
    let Ok(place) = searches.places.clone().try_acquire_owned() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many questions wait already; ask again");
    };
    let Ok(running) = searches.running.clone().acquire_owned().await else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "the server ends");
    };
    let cancel = Cancel::default();
    // This function ends early where the client has gone.
    let _wanted = Wanted(cancel.clone());
    let search = move || {
        let _allowed = (place, running);
        asked.answer(Duration::from_secs_f64(SECONDS), cancel)
    };
    match tokio::task::spawn_blocking(search).await {
        Ok(Ok(document)) => told(StatusCode::OK, &document),
        Ok(Err(reason)) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &reason),
        Err(_) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "the search failed, which is a fault of this program"),
    }
}

/// Cancels a search when nobody waits for it any more.
struct Wanted(Cancel);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

fn refusal(status: StatusCode, reason: &str) -> Response {
    told(status, &json!({ "error": reason }))
}

fn told(status: StatusCode, document: &Value) -> Response {
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], document.to_string()).into_response()
}

/// Nothing is kept, taken for something else, or shown within other pages.
async fn careful(mut response: Response) -> Response {
    let headers = [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "frame-ancestors 'none'"),
    ];
    response.headers_mut().extend(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}
